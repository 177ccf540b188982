# cmake/WeftFuzz.cmake -- one libFuzzer program per tests/fuzz/fuzz_*.c (preset fuzz; script/fuzz runs them).

file(GLOB weft_fuzz_sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
foreach(source IN LISTS weft_fuzz_sources)
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE weft_flags weft_numerics weft_static)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/fuzz")
endforeach()
