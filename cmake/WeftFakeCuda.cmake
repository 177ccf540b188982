# cmake/WeftFakeCuda.cmake -- libraries that stand in for CUDA in tests: kernels are executed on the host.
#
# weft_shim         the machine (fibers) every image of the fake NVRTC is linked with
# fake-nvrtc        NVRTC by C compilers of the host
# They are tcc and gcc where there are, whatever builds the rest: what one build folder's tests had compiled serves another's.
# Tests find it through WEFT_FAKE_NVRTC. None of them is sanitized: fibers change stacks.

set(weft_fake_folder "${CMAKE_CURRENT_BINARY_DIR}/tests")
set(weft_fake_options -fno-sanitize=all $<$<BOOL:${WEFT_COVERAGE}>:-fno-profile-arcs>
    $<$<BOOL:${WEFT_COVERAGE}>:-fno-test-coverage>)
set(weft_fake_cc "${CMAKE_C_COMPILER}")
set(weft_fake_cc_version "${CMAKE_C_COMPILER_VERSION}")
find_program(WEFT_FAKE_GCC gcc)
if(WEFT_FAKE_GCC)
    set(weft_fake_cc "${WEFT_FAKE_GCC}")
    execute_process(COMMAND ${WEFT_FAKE_GCC} -dumpfullversion
        OUTPUT_VARIABLE weft_fake_cc_version OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
file(SHA256 ${CMAKE_CURRENT_SOURCE_DIR}/tests/jit/shim/fibers.h weft_fake_a)
file(SHA256 ${CMAKE_CURRENT_SOURCE_DIR}/tests/jit/shim/cuda_shim.h weft_fake_b)
file(SHA256 ${CMAKE_CURRENT_SOURCE_DIR}/tests/cuda/nvrtc/machine.c weft_fake_c)
file(SHA256 ${CMAKE_CURRENT_SOURCE_DIR}/tests/cuda/nvrtc/fake_nvrtc.c weft_fake_d)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS tests/jit/shim/fibers.h
    tests/jit/shim/cuda_shim.h tests/cuda/nvrtc/machine.c tests/cuda/nvrtc/fake_nvrtc.c)

# Several thousand short texts a run: starting gcc, its assembler and a linker is most of it, gold being the quicker one. tcc is
# one process, a tenth of the time.
string(APPEND weft_fake_cc " -std=gnu17 -w -fPIC -nostdlib -fno-math-errno -fwrapv -fno-strict-aliasing")
if(weft_links_by_gold)
    string(APPEND weft_fake_cc " -fuse-ld=gold")
endif()
# tcc says of a write to what is const, and of a function without a declaration, no more than a warning.
set(weft_fake_quick_cc "${weft_fake_cc} -O0 -ffp-contract=off")
find_program(WEFT_FAKE_TCC tcc)
if(WEFT_FAKE_TCC) # one that takes C11
    file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/tcc.c" "_Static_assert(sizeof(int) == 4, \"\");\nfloat f(unsigned long long x) { return x; }\n")
    execute_process(COMMAND ${WEFT_FAKE_TCC} -Werror -shared tcc.c -o tcc.so WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}"
        RESULT_VARIABLE weft_fake_tcc_fails OUTPUT_QUIET ERROR_QUIET)
    if(NOT weft_fake_tcc_fails)
        set(weft_fake_quick_cc "${WEFT_FAKE_TCC} -Werror")
        execute_process(COMMAND ${WEFT_FAKE_TCC} -v OUTPUT_VARIABLE weft_fake_tcc_version OUTPUT_STRIP_TRAILING_WHITESPACE)
    endif()
endif()
string(SHA256 weft_fake_version
    "${weft_fake_a}${weft_fake_b}${weft_fake_c}${weft_fake_d}${weft_fake_cc_version}${weft_fake_cc}${weft_fake_tcc_version}${weft_fake_quick_cc}")

add_library(weft_shim STATIC tests/cuda/nvrtc/machine.c)
target_link_libraries(weft_shim PRIVATE weft_flags)
target_compile_options(weft_shim PRIVATE ${weft_fake_options})
set_target_properties(weft_shim PROPERTIES ARCHIVE_OUTPUT_DIRECTORY "${weft_fake_folder}")

add_library(fake-nvrtc MODULE tests/cuda/nvrtc/fake_nvrtc.c tests/cuda/nvrtc/store.c)
target_link_libraries(fake-nvrtc PRIVATE weft_flags)
target_compile_options(fake-nvrtc PRIVATE ${weft_fake_options})
target_compile_definitions(fake-nvrtc PRIVATE FAKE_CC="${weft_fake_cc}"
    FAKE_QUICK_CC="${weft_fake_quick_cc}"
    FAKE_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}" FAKE_VERSION="${weft_fake_version}"
    FAKE_MACHINE="${weft_fake_folder}/libweft_shim.a")
set_target_properties(fake-nvrtc PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${weft_fake_folder}")
add_dependencies(fake-nvrtc weft_shim)
