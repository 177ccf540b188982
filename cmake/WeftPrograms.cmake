# cmake/WeftPrograms.cmake -- everything that is one program per file: examples, tools, benchmarks, the
# command line. Examples see the public library only, as a user's program does.

# weft_<folder>_programs: the targets.
function(weft_programs folder)
    cmake_parse_arguments(arg "NUMERICS" "" "LIBS;SHARED_SOURCES" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.c)
    foreach(source IN LISTS sources)
        get_filename_component(name ${source} NAME_WE)
        set(mpfr "")
        file(STRINGS ${source} needs_mpfr REGEX "[Mm][Pp][Ff][Rr]" LIMIT_COUNT 1)
        if(needs_mpfr AND NOT WEFT_MPFR_INCLUDE)
            message(STATUS "${folder}/${name}: not built, MPFR is missing (libmpfr-dev)")
            continue()
        elseif(needs_mpfr)
            set(mpfr ${WEFT_MPFR} ${WEFT_GMP})
        endif()
        add_executable(${name} ${source} ${arg_SHARED_SOURCES})
        target_link_libraries(${name} PRIVATE weft_flags ${arg_LIBS} ${mpfr})
        if(TARGET weft_llvm) # opened at run time, so no link names it
            add_dependencies(${name} weft_llvm)
        endif()
        if(arg_NUMERICS)
            target_link_libraries(${name} PRIVATE weft_numerics)
        endif()
        set_target_properties(${name} PROPERTIES
            RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/${folder}")
        list(APPEND built ${name})
    endforeach()
    set(weft_${folder}_programs ${built} PARENT_SCOPE)
endfunction()

if(WEFT_BUILD_EXAMPLES)
    weft_programs(examples LIBS weft m)
endif()

if(WEFT_BUILD_TOOLS)
    find_library(WEFT_MPFR mpfr)
    find_library(WEFT_GMP gmp)
    find_path(WEFT_MPFR_INCLUDE mpfr.h)
    weft_programs(tools NUMERICS LIBS weft_static)
endif()

if(WEFT_BUILD_BENCH)
    file(GLOB weft_bench_support CONFIGURE_DEPENDS bench/support/*.c)
    weft_programs(bench LIBS weft_static SHARED_SOURCES ${weft_bench_support})
    weft_programs(bench/start LIBS weft) # started by bench_start, as a user's program
    add_dependencies(bench_start first_result)
endif()

# What no test runs is built by the script that does, script/bench, or never (script/ulp compiles its own). .ci/run reads it with clang's
# warnings.
set(weft_programs_on_demand ${weft_bench_programs})
list(REMOVE_ITEM weft_programs_on_demand bench_gpu)
if(TARGET ulp_sweep)
    list(APPEND weft_programs_on_demand ulp_sweep)
endif()
if(weft_programs_on_demand)
    set_target_properties(${weft_programs_on_demand} PROPERTIES EXCLUDE_FROM_ALL ON)
endif()

file(GLOB weft_cli_sources CONFIGURE_DEPENDS cli/*.c)
if(weft_cli_sources)
    add_executable(weft_cli ${weft_cli_sources})
    set_target_properties(weft_cli PROPERTIES OUTPUT_NAME weft
        RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/bin")
    target_link_libraries(weft_cli PRIVATE weft_flags weft_static)
    if(TARGET weft_llvm)
        add_dependencies(weft_cli weft_llvm)
    endif()
endif()
