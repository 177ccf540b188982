# cmake/WeftGpuTests.cmake -- the GPU tests without Criterion: target gpu_tests, which script/gpu builds where the GPU is.
#
# Each tests/gpu/test_NAME.c becomes gpu_tests/NAME, with tests/gpu/runner.c in place of Criterion, and so do the suites of
# tests/jit that hold every row and program on the device to the host's bits. Under CTest the same sources run on the fake
# driver (cmake/WeftTests.cmake).
file(GLOB weft_gpu_sources CONFIGURE_DEPENDS tests/gpu/test_*.c)
list(APPEND weft_gpu_sources tests/jit/test_cuda_ops.c tests/jit/test_cuda_rows.c tests/jit/test_cuda_programs.c)
file(GLOB weft_gpu_support CONFIGURE_DEPENDS tests/support/*.c tests/ref/*.c)
add_library(gpu_test_support OBJECT EXCLUDE_FROM_ALL ${weft_gpu_support})
target_link_libraries(gpu_test_support PRIVATE weft_flags weft_numerics)
target_compile_definitions(gpu_test_support PRIVATE WEFT_GPU_RUNNER)
add_custom_target(gpu_tests)
foreach(source IN LISTS weft_gpu_sources)
    get_filename_component(name ${source} NAME_WE)
    string(REPLACE "test_" "" name ${name}) # targets of CTest's programs keep theirs
    add_executable(alone_${name} EXCLUDE_FROM_ALL ${source} tests/gpu/runner.c $<TARGET_OBJECTS:gpu_test_support>)
    target_link_libraries(alone_${name} PRIVATE weft_flags weft_numerics weft_static)
    target_compile_definitions(alone_${name} PRIVATE WEFT_GPU_RUNNER)
    set_target_properties(alone_${name} PROPERTIES OUTPUT_NAME ${name}
        RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/gpu_tests")
    add_dependencies(gpu_tests alone_${name})
endforeach()
