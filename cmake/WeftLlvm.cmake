# cmake/WeftLlvm.cmake -- libweft-llvm.so: jit/codegen_cpu with LLVM 19 inside, statically, X86 and ORC
# only, every LLVM symbol hidden. It is opened by libweft at the first compile; without it weft works.

file(GLOB weft_llvm_sources CONFIGURE_DEPENDS jit/codegen_cpu/llvm*.c)
set(WEFT_HAVE_LLVM OFF)
if(NOT WEFT_LLVM STREQUAL "OFF" AND weft_llvm_sources)
    find_program(LLVM_CONFIG llvm-config-19)
    check_language(CXX)
    if(LLVM_CONFIG AND CMAKE_CXX_COMPILER)
        set(WEFT_HAVE_LLVM ON)
    elseif(WEFT_LLVM STREQUAL "ON")
        message(FATAL_ERROR "WEFT_LLVM=ON, but llvm-config-19 or a C++ linker is missing (llvm-19-dev, g++)")
    endif()
endif()

if(WEFT_HAVE_LLVM)
    enable_language(CXX)
    macro(weft_llvm_config out)
        execute_process(COMMAND ${LLVM_CONFIG} ${ARGN}
            OUTPUT_VARIABLE ${out} OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    endmacro()
    weft_llvm_config(llvm_include --includedir)
    weft_llvm_config(llvm_libdir --libdir)
    weft_llvm_config(llvm_libs --link-static --libs x86codegen x86desc x86info orcjit core)
    separate_arguments(llvm_libs)
    find_library(WEFT_ZSTD zstd REQUIRED)
    find_library(WEFT_ZLIB z REQUIRED)
    add_library(weft_llvm SHARED ${weft_llvm_sources} $<TARGET_OBJECTS:weft_ir>)
    # reductions end in loops over lanes there
    set_source_files_properties(jit/codegen_cpu/llvm_fold.c PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
    target_link_libraries(weft_llvm PRIVATE weft_flags weft_numerics -L${llvm_libdir} ${llvm_libs}
        ${WEFT_ZLIB} ${WEFT_ZSTD} rt ${CMAKE_DL_LIBS} m Threads::Threads)
    target_include_directories(weft_llvm SYSTEM PRIVATE ${llvm_include})
    target_compile_options(weft_llvm PRIVATE ${weft_hidden} -ffunction-sections -fdata-sections)
    target_link_options(weft_llvm PRIVATE
        "-Wl,--version-script,${CMAKE_CURRENT_SOURCE_DIR}/cmake/weft-llvm.map"
        -Wl,--exclude-libs,ALL -Wl,-Bsymbolic -Wl,-z,now -Wl,--gc-sections
        -static-libstdc++ -static-libgcc)
    set_target_properties(weft_llvm PROPERTIES
        OUTPUT_NAME weft-llvm LINKER_LANGUAGE CXX
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    message(STATUS "LLVM back end: LLVM 19, static, in libweft-llvm.so")
elseif(NOT weft_llvm_sources)
    message(STATUS "LLVM back end: no sources in jit/codegen_cpu, not built")
else()
    message(STATUS "LLVM back end: not built (WEFT_LLVM=${WEFT_LLVM}, llvm-config-19: ${LLVM_CONFIG})")
endif()
