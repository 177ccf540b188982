# cmake/WeftFakeCuda.cmake -- libraries that stand in for CUDA in tests: kernels are executed on the host.
#
# weft_shim         the machine (fibers) every image of the fake NVRTC is linked with
# fake-nvrtc        NVRTC by the host's C compiler
# It is gcc where there is one, whatever builds the rest: what one build folder's tests had compiled serves another's.
# Tests find it through WEFT_FAKE_NVRTC. None of them is sanitized: fibers change stacks.

set(weft_fake_folder "${CMAKE_CURRENT_BINARY_DIR}/tests")
set(weft_fake_options -fno-sanitize=all $<$<BOOL:${WEFT_COVERAGE}>:-fno-profile-arcs>
    $<$<BOOL:${WEFT_COVERAGE}>:-fno-test-coverage>)
set(weft_fake_cc "${CMAKE_C_COMPILER}")
set(weft_fake_cc_version "${CMAKE_C_COMPILER_VERSION}")
find_program(WEFT_FAKE_GCC gcc)
if(WEFT_FAKE_GCC AND NOT CMAKE_C_COMPILER_ID STREQUAL "GNU")
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

# Several thousand short texts a run: starting compiler and linker is most of it. gold links such a text in less than half of ld's time.
set(weft_fake_flags -std=gnu17 -w -fPIC -fno-math-errno -fwrapv -fno-strict-aliasing)
list(JOIN weft_fake_flags " " weft_fake_command)
set(weft_fake_linker "")
if(weft_links_by_gold)
    set(weft_fake_linker " -fuse-ld=gold")
endif()
string(SHA256 weft_fake_version
    "${weft_fake_a}${weft_fake_b}${weft_fake_c}${weft_fake_d}${weft_fake_cc_version}${weft_fake_command}${weft_fake_linker}")

add_library(weft_shim STATIC tests/cuda/nvrtc/machine.c)
target_link_libraries(weft_shim PRIVATE weft_flags)
target_compile_options(weft_shim PRIVATE ${weft_fake_options})
set_target_properties(weft_shim PROPERTIES ARCHIVE_OUTPUT_DIRECTORY "${weft_fake_folder}")

# The shim's header as gcc has read it, for texts that are not optimised; what is not of this compiler it passes over.
set(weft_fake_header "${weft_fake_folder}/shim/cuda_shim.h.gch")
file(MAKE_DIRECTORY "${weft_fake_folder}/shim")
add_custom_command(OUTPUT "${weft_fake_header}" DEPENDS tests/jit/shim/cuda_shim.h VERBATIM
    COMMAND ${weft_fake_cc} ${weft_fake_flags} -O0 -ffp-contract=off -x c-header
        ${CMAKE_CURRENT_SOURCE_DIR}/tests/jit/shim/cuda_shim.h -o "${weft_fake_header}")
add_custom_target(fake-header DEPENDS "${weft_fake_header}")

add_library(fake-nvrtc MODULE tests/cuda/nvrtc/fake_nvrtc.c)
target_link_libraries(fake-nvrtc PRIVATE weft_flags)
target_compile_options(fake-nvrtc PRIVATE ${weft_fake_options})
target_compile_definitions(fake-nvrtc PRIVATE FAKE_CC="${weft_fake_cc} ${weft_fake_command}" FAKE_LINKER="${weft_fake_linker}"
    FAKE_HEADER_DIR="${weft_fake_folder}/shim"
    FAKE_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}" FAKE_VERSION="${weft_fake_version}"
    FAKE_MACHINE="${weft_fake_folder}/libweft_shim.a")
set_target_properties(fake-nvrtc PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${weft_fake_folder}")
add_dependencies(fake-nvrtc weft_shim fake-header)
