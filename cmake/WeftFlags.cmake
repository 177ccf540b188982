# cmake/WeftFlags.cmake -- compile flags, as interface targets.
#
# weft_flags      warnings and language mode, for everything written here
# weft_numerics   what keeps the bits of strict IEEE arithmetic; for the library and for tests that
#                 compute references. No fast-math flag may ever be added to it.

add_library(weft_flags INTERFACE)
target_compile_definitions(weft_flags INTERFACE _GNU_SOURCE)
target_compile_options(weft_flags INTERFACE
    -Wall -Wextra -Wshadow -Wformat=2
    $<$<COMPILE_LANGUAGE:C>:-Wconversion -Wswitch-enum>)
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
    # `enum { N = 100 };` as a constant in float arithmetic is meant. A pragma that asks for vectors is a wish:
    # integer division has none.
    target_compile_options(weft_flags INTERFACE -Wno-enum-float-conversion -Wno-pass-failed)
endif()
if(WEFT_WERROR)
    target_compile_options(weft_flags INTERFACE -Werror)
endif()
target_include_directories(weft_flags INTERFACE
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}>
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>)

# -fno-fast-math first: clang lets it reset the options before it.
add_library(weft_numerics INTERFACE)
target_compile_options(weft_numerics INTERFACE
    -fno-fast-math -ffp-contract=off -fno-math-errno -fno-trapping-math -fwrapv)

# Sanitizers and coverage change every object, so they are global. -g1: reports need lines, not variables,
# and gcc spends as long on tracking those as on everything else.
if(WEFT_SANITIZE STREQUAL "address")
    add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
    add_link_options(-fsanitize=address,undefined)
    # Locals stay on the stack, as gcc has them: whether a generator lies there is asked by its address.
    if(CMAKE_C_COMPILER_ID MATCHES "Clang")
        add_compile_options(-fsanitize-address-use-after-return=never)
    endif()
elseif(WEFT_SANITIZE STREQUAL "thread")
    add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -g1)
    add_link_options(-fsanitize=thread)
elseif(WEFT_SANITIZE STREQUAL "memory")
    add_compile_options(-fsanitize=memory -fno-omit-frame-pointer -g1)
    add_link_options(-fsanitize=memory)
elseif(WEFT_SANITIZE STREQUAL "fuzzer")
    if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "WEFT_SANITIZE=fuzzer needs clang")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -g1)
    add_link_options(-fsanitize=address,undefined)
elseif(NOT WEFT_SANITIZE STREQUAL "")
    message(FATAL_ERROR "WEFT_SANITIZE must be address, thread, memory, fuzzer or empty")
endif()
# Every test program holds the whole library, so that linking them is a good part of a build: by the quickest linker that links here.
include(CheckLinkerFlag)
set(weft_quick_linker "")
foreach(linker IN ITEMS lld gold)
    check_linker_flag(C -fuse-ld=${linker} weft_links_by_${linker})
    if(weft_links_by_${linker} AND NOT weft_quick_linker)
        set(weft_quick_linker -fuse-ld=${linker})
    endif()
endforeach()
if(WEFT_SANITIZE)
    add_link_options(${weft_quick_linker})
endif()
if(WEFT_COVERAGE)
    add_compile_options(--coverage)
    add_link_options(--coverage)
endif()
# The best copy of the kernels (cmake/WeftLibrary.cmake) that this processor runs.
execute_process(COMMAND ${CMAKE_C_COMPILER} -march=native -dM -E -x c /dev/null OUTPUT_VARIABLE weft_native)
set(weft_best sse2)
foreach(isa IN ITEMS AVX2 AVX512)
    if(weft_native MATCHES "#define __${isa}(VL)?__ ")
        string(TOLOWER ${isa} weft_best)
    endif()
endforeach()
