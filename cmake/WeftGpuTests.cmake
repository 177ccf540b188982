# cmake/WeftGpuTests.cmake -- the GPU tests without Criterion: target gpu_tests, which script/gpu builds where the GPU is.
#
# Each tests/gpu/test_NAME.c becomes gpu_tests/NAME, with tests/gpu/runner.c in place of Criterion. Under CTest the same
# sources run on the fake driver (cmake/WeftTests.cmake).
file(GLOB weft_gpu_sources CONFIGURE_DEPENDS tests/gpu/test_*.c)
add_custom_target(gpu_tests)
foreach(source IN LISTS weft_gpu_sources)
    get_filename_component(name ${source} NAME_WE)
    string(REPLACE "test_" "" name ${name}) # targets of CTest's programs keep theirs
    add_executable(alone_${name} EXCLUDE_FROM_ALL ${source} tests/gpu/runner.c)
    target_link_libraries(alone_${name} PRIVATE weft_flags weft_numerics weft_static)
    target_compile_definitions(alone_${name} PRIVATE WEFT_GPU_RUNNER)
    set_target_properties(alone_${name} PROPERTIES OUTPUT_NAME ${name}
        RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/gpu_tests")
    add_dependencies(gpu_tests alone_${name})
endforeach()
