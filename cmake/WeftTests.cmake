# cmake/WeftTests.cmake -- one Criterion program per tests/<folder>/test_*.c, under CTest.
#
# Programs link the objects of the library, so internal wf_* functions can be tested; tests/support and
# tests/ref are linked into each. A test's labels are its folder plus the words of a comment in its source:
#     ctest: threads serial timeout=300
# `threads` puts it into the TSan run, `serial` keeps other tests away while it runs, `processors=2` all but one (script/test has
# a program or two more than processors run), `timeout` is in seconds (default 240), `cost=100` starts it early (a long program last
# leaves the other cores idle), `optimised` is for one that reckons much itself (below), `reckons` for one that does
# where it takes all cases: not under ASan. `exits` is told below.

if(WEFT_SANITIZE STREQUAL "fuzzer")
    return() # script/fuzz builds fuzz targets only
endif()

# Checks that are scripts.
if(NOT WEFT_SANITIZE AND NOT WEFT_COVERAGE)
    add_test(NAME check_install
        COMMAND script/check-install ${CMAKE_CURRENT_BINARY_DIR}
        WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set_tests_properties(check_install PROPERTIES LABELS install TIMEOUT 300
        ENVIRONMENT "CC=${CMAKE_C_COMPILER}")
    file(GLOB weft_lint_checks CONFIGURE_DEPENDS tests/lint/check_*)
    foreach(check IN LISTS weft_lint_checks)
        get_filename_component(name ${check} NAME)
        add_test(NAME ${name} COMMAND ${check} WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
        set_tests_properties(${name} PROPERTIES LABELS lint TIMEOUT 300
            ENVIRONMENT "CC=${CMAKE_C_COMPILER};BUILD=${CMAKE_CURRENT_BINARY_DIR}")
    endforeach()
endif()

# The inputs the fuzzer has found so far, as a test without the fuzzer.
file(GLOB weft_fuzz_sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
foreach(source IN LISTS weft_fuzz_sources)
    if(WEFT_SANITIZE STREQUAL "thread")
        break()
    endif()
    get_filename_component(name ${source} NAME_WE)
    string(REPLACE "fuzz_" "" corpus ${name})
    add_executable(replay_${corpus} ${source} tests/runner/replay.c)
    target_link_libraries(replay_${corpus} PRIVATE weft_flags weft_numerics weft_inside)
    set_target_properties(replay_${corpus} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/tests")
    add_test(NAME replay_${corpus}
        COMMAND replay_${corpus} ${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz/corpus/${corpus})
    set_tests_properties(replay_${corpus} PROPERTIES LABELS fuzz TIMEOUT 240)
endforeach()

find_path(CRITERION_INCLUDE criterion/criterion.h)
find_library(CRITERION_LIBRARY NAMES libcriterion.so criterion)
if(NOT CRITERION_INCLUDE OR NOT CRITERION_LIBRARY)
    message(WARNING "Criterion not found: NO TEST PROGRAM WILL BE BUILT (install libcriterion-dev, or run script/bootstrap)")
    return()
endif()

if(NOT WEFT_SANITIZE STREQUAL "thread")
    include(WeftFakeCuda)
endif()

file(GLOB weft_test_support CONFIGURE_DEPENDS tests/support/*.c tests/ref/*.c)
file(GLOB weft_test_sources CONFIGURE_DEPENDS tests/*/test_*.c)
list(FILTER weft_test_sources EXCLUDE REGEX "/tests/mustfail/")
# Criterion cannot run under TSan, nor under an emulator of processors (its children would leave it); its tests can
# (tests/runner/runner.c).
if(WEFT_SANITIZE STREQUAL "thread" OR WEFT_FORK_RUNNER)
    list(APPEND weft_test_support ${CMAKE_CURRENT_SOURCE_DIR}/tests/runner/runner.c)
endif()
file(GLOB weft_mustfail_sources CONFIGURE_DEPENDS tests/mustfail/*.c)

if(weft_test_support)
    add_library(weft_test_support OBJECT ${weft_test_support})
    target_link_libraries(weft_test_support PRIVATE weft_flags weft_numerics)
    target_include_directories(weft_test_support SYSTEM PRIVATE ${CRITERION_INCLUDE})
    set(weft_test_support_objects $<TARGET_OBJECTS:weft_test_support>)
endif()

# A CUDA driver whose device is the host (tests/cuda/driver/fake.h): a library of its own, opened at run time.
# Images are shared objects of the fake NVRTC (cmake/WeftFakeCuda.cmake), or the PTX that ptx-nvrtc has of the real one.
file(GLOB weft_fake_cuda_sources CONFIGURE_DEPENDS tests/cuda/driver/*.c tests/cuda/ptx/*.c)
list(FILTER weft_fake_cuda_sources EXCLUDE REGEX "/real_nvrtc.c$")
add_library(fake-cuda MODULE ${weft_fake_cuda_sources})
target_link_libraries(fake-cuda PRIVATE weft_flags weft_numerics ${CMAKE_DL_LIBS} Threads::Threads m)
target_compile_options(fake-cuda PRIVATE -fvisibility=hidden)
set_target_properties(fake-cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/tests")
# The interpreter's files call each other at every instruction: a quarter of its time.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND NOT WEFT_SANITIZE AND NOT WEFT_COVERAGE)
    target_compile_options(fake-cuda PRIVATE -flto)
    target_link_options(fake-cuda PRIVATE -O2 -flto)
endif()
add_library(ptx-nvrtc MODULE tests/cuda/ptx/real_nvrtc.c tests/cuda/nvrtc/store.c)
target_link_libraries(ptx-nvrtc PRIVATE weft_flags ${CMAKE_DL_LIBS} Threads::Threads)
target_compile_options(ptx-nvrtc PRIVATE -fvisibility=hidden)
set_target_properties(ptx-nvrtc PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/tests")
set_property(SOURCE tests/cuda/test_cuda_ptx.c APPEND PROPERTY
    COMPILE_DEFINITIONS WEFT_PTX_NVRTC="${CMAKE_CURRENT_BINARY_DIR}/tests/libptx-nvrtc.so")

# The toolkit's own declarations, to compare ours with (tests/cuda/test_cuda_abi.c).
find_path(WEFT_CUDA_INCLUDE cuda.h HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)

# And a cuBLASLt and a cuDNN for it.
add_library(fake-cublas MODULE tests/cuda/cublas/fake_cublas.c)
target_link_libraries(fake-cublas PRIVATE weft_flags weft_numerics ${CMAKE_DL_LIBS} m)
target_compile_options(fake-cublas PRIVATE -fvisibility=hidden)
set_target_properties(fake-cublas PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/tests")
add_library(fake-cudnn MODULE tests/cuda/cudnn/fake_cudnn.c tests/cuda/cudnn/fake_graph.c)
target_link_libraries(fake-cudnn PRIVATE weft_flags weft_numerics ${CMAKE_DL_LIBS} m)
target_compile_options(fake-cudnn PRIVATE -fvisibility=hidden)
set_target_properties(fake-cudnn PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/tests")
# What the real cuDNN's engines take for a driver while they are only asked.
add_library(no-driver MODULE tests/cuda/cudnn/no_driver.c)
target_link_libraries(no-driver PRIVATE weft_flags)
target_link_options(no-driver PRIVATE -Wl,-soname,libcuda.so.1)
set_target_properties(no-driver PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/tests" NO_SONAME ON)
set_property(SOURCE tests/cuda/test_cuda_attention.c tests/cuda/test_cuda_conv.c APPEND PROPERTY
    COMPILE_DEFINITIONS WEFT_NO_DRIVER="${CMAKE_CURRENT_BINARY_DIR}/tests/libno-driver.so")
set_property(SOURCE tests/cuda/test_cuda_conv.c tests/cuda/test_cuda_attention.c tests/gpu/test_gpu_libs.c APPEND PROPERTY
    COMPILE_DEFINITIONS WEFT_FAKE_CUDNN="${CMAKE_CURRENT_BINARY_DIR}/tests/libfake-cudnn.so")
set_property(SOURCE tests/cuda/test_cuda_matmul.c tests/gpu/test_gpu_libs.c APPEND PROPERTY
    COMPILE_DEFINITIONS WEFT_FAKE_CUBLAS="${CMAKE_CURRENT_BINARY_DIR}/tests/libfake-cublas.so")

# clang's UBSan compares the type of a function with that of the pointer it is called by: the real libraries say nothing of
# theirs, and these need not either.
if(WEFT_SANITIZE AND CMAKE_C_COMPILER_ID MATCHES "Clang")
    foreach(fake fake-cuda ptx-nvrtc fake-cublas fake-cudnn no-driver)
        target_compile_options(${fake} PRIVATE -fno-sanitize=function)
    endforeach()
endif()

# Tests have the library reckon. Three quarters of what a compiler takes for them go into making them quicker, which costs more than it
# saves (but for those that are marked).
set(weft_optimised_marks optimised)
if(NOT WEFT_SANITIZE STREQUAL "address")
    list(APPEND weft_optimised_marks reckons)
endif()
string(JOIN "|" weft_optimised_marks ${weft_optimised_marks})

# ThreadSanitizer watches the library, and programs that have to do with threads themselves. Of the others it would follow what one
# thread does to operands and references element by element, half of the time of such a program; what a worker still writes when a call
# returns is a race with the library's next touch of it or with whoever frees it.
set(weft_test_unwatched "")
if(WEFT_SANITIZE STREQUAL "thread")
    set(weft_test_unwatched -fno-sanitize=thread -DWEFT_UNDER_TSAN)
    target_compile_options(weft_test_support PRIVATE ${weft_test_unwatched})
endif()
# UBSan watches the library too, not what expects things of it (but for the types of functions it is given); ASan watches both: what the
# library overruns may be a test's.
if(WEFT_SANITIZE STREQUAL "address" AND CMAKE_C_COMPILER_ID MATCHES "Clang")
    set(weft_test_asan_only -fno-sanitize=undefined -fsanitize=function)
    target_compile_options(weft_test_support PRIVATE ${weft_test_asan_only})
endif()

function(weft_test_program name)
    set(weft_inside weft_inside)
    if(ARGN MATCHES "/planted/") # an LLVM beside the program is beside the library
        set(weft_inside weft_static)
    endif()
    add_executable(${name} ${ARGN} ${weft_test_support_objects})
    target_link_libraries(${name} PRIVATE weft_flags weft_numerics ${weft_inside} ${CRITERION_LIBRARY})
    target_include_directories(${name} SYSTEM PRIVATE ${CRITERION_INCLUDE})
    target_link_options(${name} PRIVATE ${weft_quick_linker})
    target_compile_options(${name} PRIVATE ${weft_test_asan_only})
    list(GET ARGN 0 first)
    file(STRINGS ${first} threads REGEX "pthread_create|stdatomic|_Atomic|wf_parallel|wf_thread_start" LIMIT_COUNT 1)
    if(NOT threads)
        target_compile_options(${name} PRIVATE ${weft_test_unwatched})
    endif()
    target_compile_definitions(${name} PRIVATE WEFT_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}"
        WEFT_FAKE_CUDA="${CMAKE_CURRENT_BINARY_DIR}/tests/libfake-cuda.so"
        WEFT_FAKE_NVRTC="${CMAKE_CURRENT_BINARY_DIR}/tests/libfake-nvrtc.so")
    if(name MATCHES "^test_cuda_abi" AND WEFT_CUDA_INCLUDE)
        target_include_directories(${name} SYSTEM PRIVATE ${WEFT_CUDA_INCLUDE})
        target_compile_definitions(${name} PRIVATE WEFT_HAVE_CUDA_H WEFT_CUDA_INCLUDE="${WEFT_CUDA_INCLUDE}")
    endif()
    add_dependencies(${name} fake-cublas fake-cudnn fake-cuda ptx-nvrtc no-driver)
    if(TARGET fake-nvrtc)
        add_dependencies(${name} fake-nvrtc)
    endif()
    set_target_properties(${name} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/tests")
endfunction()

# What libraries that are not instrumented write is, to MemorySanitizer, unwritten.
set(weft_environment "")
if(WEFT_SANITIZE STREQUAL "memory")
    set(weft_environment ";MSAN_OPTIONS=allocator_may_return_null=1;WEFT_NO_ONEDNN=1;WEFT_NVRTC=none")
endif()

# What is freed stays out of use until 16 MB of it have been, not 256: fresh pages, with their shadow, are a tenth of a program's time.
set(weft_asan_options "ASAN_OPTIONS=allocator_may_return_null=1:quarantine_size_mb=16")

# A process with threads that live on waits, when all else has been done, for what these still do to each other: ThreadSanitizer a second,
# which most of its tests would do nothing but wait for. Whole seconds wait programs that are marked `exits`, whose threads may be in
# the midst of something.
set(weft_tsan_options "TSAN_OPTIONS=ignore_noninstrumented_modules=1")

# Sanitized programs are slower.
set(weft_timeout_factor 1)
if(WEFT_SANITIZE OR WEFT_COVERAGE)
    set(weft_timeout_factor 3)
endif()

# Programs that find an LLVM beside them that compiles something else than what it is given.
if(TARGET weft_llvm AND NOT WEFT_SANITIZE STREQUAL "thread")
    add_library(wrong-llvm MODULE tests/planted/wrong_llvm.c)
    target_link_libraries(wrong-llvm PRIVATE weft_flags ${CMAKE_DL_LIBS})
    target_compile_options(wrong-llvm PRIVATE -fvisibility=hidden)
    target_compile_definitions(wrong-llvm PRIVATE REAL_LLVM="$<TARGET_FILE:weft_llvm>")
    add_dependencies(wrong-llvm weft_llvm)
    set(weft_planted "${CMAKE_CURRENT_BINARY_DIR}/tests/planted")
    add_custom_command(TARGET wrong-llvm POST_BUILD COMMAND ${CMAKE_COMMAND} -E make_directory ${weft_planted}
        COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:wrong-llvm>
            ${weft_planted}/libweft-llvm.so.${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()

foreach(source IN LISTS weft_test_sources)
    get_filename_component(name ${source} NAME_WE)
    get_filename_component(folder ${source} DIRECTORY)
    get_filename_component(folder ${folder} NAME)
    set(labels ${folder} criterion)
    set(timeout 240)
    set(cost 0)
    set(processors 1)
    set(exits ":atexit_sleep_ms=50")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(STRINGS ${source} marks REGEX "ctest:" LIMIT_COUNT 1)
    string(REGEX REPLACE ".*ctest:" "" marks "${marks}")
    string(REGEX MATCHALL "[a-z]+(=[0-9]+)?" marks "${marks}")
    foreach(mark IN LISTS marks)
        if(mark MATCHES "^timeout=([0-9]+)$")
            set(timeout ${CMAKE_MATCH_1})
        elseif(mark MATCHES "^cost=([0-9]+)$")
            set(cost ${CMAKE_MATCH_1})
        elseif(mark MATCHES "^processors=([0-9]+)$")
            set(processors ${CMAKE_MATCH_1})
        elseif(mark STREQUAL "exits")
            set(exits "")
        else()
            list(APPEND labels ${mark})
        endif()
    endforeach()
    if(WEFT_SANITIZE STREQUAL "thread" AND NOT "threads" IN_LIST labels)
        continue()
    endif()
    if(WEFT_SANITIZE STREQUAL "memory" AND folder MATCHES "^(cuda|gpu)$") # on stand-ins that are not instrumented
        continue()
    endif()
    if(folder STREQUAL "planted" AND NOT TARGET wrong-llvm)
        continue()
    endif()
    weft_test_program(${name} ${source})
    list(APPEND weft_tests ${name})
    if(NOT labels MATCHES "(^|;)(${weft_optimised_marks})(;|$)")
        target_compile_options(${name} PRIVATE -O0)
    endif()
    if(folder STREQUAL "planted")
        add_dependencies(${name} wrong-llvm)
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${weft_planted})
    endif()
    set(filter)
    if(name STREQUAL "test_cuda_nvrtc")
        set(filter "--filter=cuda_nvrtc/!(collected)") # see below
    endif()
    add_test(NAME ${name} COMMAND ${name} -j1 --verbose=1 ${filter} WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    math(EXPR timeout "${timeout} * ${weft_timeout_factor}")
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout} COST ${cost} PROCESSORS ${processors}
        ENVIRONMENT "${weft_asan_options};UBSAN_OPTIONS=print_stacktrace=1;${weft_tsan_options}${exits};WEFT_CACHE_SIZE=0${weft_environment}")
    if("serial" IN_LIST labels)
        set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    endif()
endforeach()

if(TARGET test_cuda_nvrtc) # names texts as the fake does
    target_sources(test_cuda_nvrtc PRIVATE tests/cuda/nvrtc/store.c)
endif()
if(TARGET test_cuda_ptx) # it runs them again
    add_dependencies(test_cuda_ptx test_cuda_ops test_cuda_graphs test_cuda_rows test_cuda_programs test_gpu_train)
endif()

# What the GPU's suites have the fake NVRTC compile is collected, and looked up afterwards in the record of what the real one made of
# it. That compiles what is not on record, and some of what is: 4 s of one core, or minutes after a change of all texts that nobody recorded.
if(TARGET test_cuda_nvrtc AND NOT WEFT_SANITIZE AND NOT WEFT_COVERAGE)
    set(weft_texts "${CMAKE_CURRENT_BINARY_DIR}/tests/texts")
    set(weft_text_suites ${weft_tests})
    list(FILTER weft_text_suites INCLUDE REGEX "^test_(gpu_.*|cuda_(ops|rows|programs|graphs))$")
    add_test(NAME texts_before COMMAND sh -c "rm -rf \"$0\" && mkdir \"$0\"" ${weft_texts})
    set_tests_properties(texts_before PROPERTIES LABELS jit FIXTURES_SETUP texts)
    set_property(TEST ${weft_text_suites} APPEND PROPERTY ENVIRONMENT "FAKE_NVRTC_TEXTS=${weft_texts}")
    set_property(TEST ${weft_text_suites} APPEND PROPERTY FIXTURES_REQUIRED texts)
    add_test(NAME test_cuda_nvrtc_collected COMMAND test_cuda_nvrtc -j1 --verbose=1 --filter=cuda_nvrtc/collected
        WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set_tests_properties(test_cuda_nvrtc_collected PROPERTIES LABELS "jit;criterion" TIMEOUT 1800 DEPENDS "${weft_text_suites}"
        ENVIRONMENT "WEFT_CACHE_SIZE=0;WEFT_TEST_TEXTS=${weft_texts};WEFT_TEST_MOST=60")
endif()

# Text in, text out, by the command: passes and plans; and that a difference is one.
if(TARGET weft-opt)
    file(GLOB weft_golden CONFIGURE_DEPENDS tests/jit/ir/*.wir tests/jit/plan/*.wir)
    add_test(NAME weft_opt_golden COMMAND weft-opt --golden ${weft_golden} WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    add_test(NAME weft_opt_differs COMMAND sh -c "sed s/^peak/peek/ tests/jit/plan/siblings.wir > $1.wir && ! $0 --golden $1.wir"
        $<TARGET_FILE:weft-opt> ${CMAKE_CURRENT_BINARY_DIR}/tests/differs WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    add_test(NAME weft_opt_dims COMMAND sh tests/jit/plan/dims.sh $<TARGET_FILE:weft-opt> WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set_tests_properties(weft_opt_golden weft_opt_differs weft_opt_dims PROPERTIES LABELS jit TIMEOUT 60)
endif()

# Random functions in two halves: one program would be the last to end.
if(TARGET test_graph_fuzz AND NOT WEFT_SANITIZE AND NOT WEFT_COVERAGE)
    set_property(TEST test_graph_fuzz APPEND PROPERTY ENVIRONMENT "WEFT_FUZZ_GRAPHS=5000")
    add_test(NAME test_graph_fuzz_half COMMAND test_graph_fuzz -j1 --verbose=1 "--filter=graph_fuzz/every_way_*"
        WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set_tests_properties(test_graph_fuzz_half PROPERTIES LABELS "fuzz;criterion" TIMEOUT 900 COST 100
        ENVIRONMENT "WEFT_CACHE_SIZE=0;WEFT_FUZZ_GRAPHS=5000;WEFT_FUZZ_SEED=5001")
endif()

# Programs traced while arrays move, orders and groups are others, and nothing is remembered.
if(TARGET test_trace_fuzz)
    set(programs 200)
    if(WEFT_SANITIZE)
        set(programs 60)
    endif()
    add_test(NAME test_trace_fuzz_stress COMMAND test_trace_fuzz -j1 --verbose=1
        WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set_tests_properties(test_trace_fuzz_stress PROPERTIES LABELS "fuzz;criterion" TIMEOUT 600
        ENVIRONMENT "${weft_asan_options};WEFT_CACHE_SIZE=0;WEFT_STRESS=move,order:5,evict;WEFT_FUZZ_SEED=5001;WEFT_FUZZ_GRAPHS=${programs}")
endif()

# Every launch of random programs, of training steps and of images in both layouts against its ops one by one.
if(TARGET test_trace_fuzz AND NOT WEFT_SANITIZE)
    foreach(name test_trace_fuzz test_jit_train test_jit_layout)
        add_test(NAME ${name}_validate COMMAND ${name} -j1 --verbose=1 WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
        set_tests_properties(${name}_validate PROPERTIES LABELS "jit;criterion" TIMEOUT 300
            ENVIRONMENT "WEFT_CACHE_SIZE=0;WEFT_VALIDATE=1;WEFT_STRESS=verify;WEFT_FUZZ_SEED=7001;WEFT_FUZZ_GRAPHS=200")
    endforeach()
endif()
if(TARGET test_cuda_graphs AND NOT WEFT_SANITIZE) # the same of a device
    add_test(NAME test_cuda_graphs_validate COMMAND test_cuda_graphs -j1 --verbose=1 WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set_tests_properties(test_cuda_graphs_validate PROPERTIES LABELS "jit;criterion" TIMEOUT 900
        ENVIRONMENT "WEFT_VALIDATE=1;WEFT_FUZZ_SEED=7001;WEFT_TEST_GRAPHS=60")
endif()

# Products and convolutions as on machines with fewer instructions: oneDNN has other kernels for each. Where neither library is
# kept from what this processor has, that is what the whole program ran.
if(NOT WEFT_SANITIZE AND NOT WEFT_COVERAGE)
    set(isas sse2 avx2 avx512)
    set(levels SSE41 AVX2 AVX2_VNNI AVX2_VNNI_2 AVX512_CORE AVX512_CORE_VNNI AVX512_CORE_BF16 ALL)
    set(level_AVX2 AVX2)
    set(level_AVXVNNI AVX2_VNNI)
    set(level_AVXNECONVERT AVX2_VNNI_2)
    set(level_AVX512VL AVX512_CORE)
    set(level_AVX512VNNI AVX512_CORE_VNNI)
    set(level_AVX512BF16 AVX512_CORE_BF16)
    set(level_AMX_TILE ALL)
    set(level_AVX512FP16 ALL)
    set(has SSE41)
    foreach(feature IN ITEMS AVX2 AVXVNNI AVXNECONVERT AVX512VL AVX512VNNI AVX512BF16 AMX_TILE AVX512FP16)
        if(weft_native MATCHES "#define __${feature}__ ")
            set(has ${level_${feature}})
        endif()
    endforeach()
    list(FIND isas ${weft_best} best)
    list(FIND levels ${has} most)
    foreach(level sse2,SSE41 sse2,ALL avx2,AVX2 avx2,ALL avx512,AVX512_CORE avx512,AVX512_CORE_BF16)
        string(REPLACE "," ";" level ${level})
        list(GET level 0 isa)
        list(GET level 1 onednn)
        list(FIND isas ${isa} isa_at)
        list(FIND levels ${onednn} onednn_at)
        if(isa_at GREATER_EQUAL best AND onednn_at GREATER_EQUAL most)
            message(STATUS "Products and convolutions of ${isa}, oneDNN at ${onednn}: as without limits here")
            continue()
        endif()
        foreach(name test_conv test_gemm)
            set(narrow ${name}_${isa}_${onednn})
            add_test(NAME ${narrow} COMMAND ${name} -j1 --verbose=1
                "--filter=*/@(random_*|infinity_*|what_onednn_*|gradients_of_weights_*|same_bits_in_*|one_order)" WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
            set_tests_properties(${narrow} PROPERTIES LABELS "unit;criterion" TIMEOUT 240 FAIL_REGULAR_EXPRESSION "Tested: 0"
                ENVIRONMENT "WEFT_TEST_EFFORT=8;WEFT_ISA=${isa};ONEDNN_MAX_CPU_ISA=${onednn}")
        endforeach()
    endforeach()
endif()

if(TARGET test_cli AND TARGET weft_cli) # it runs the command
    add_dependencies(test_cli weft_cli)
endif()

# Every test of this program must fail: script/test runs it and counts. It is not in CTest. Under ASan it shows that leaks and
# overruns are failures of the runner, too.
if(weft_mustfail_sources AND (NOT WEFT_SANITIZE OR WEFT_SANITIZE STREQUAL "address"))
    weft_test_program(mustfail ${weft_mustfail_sources})
endif()
