# cmake/WeftTests.cmake -- one Criterion program per tests/<folder>/test_*.c, under CTest.
#
# Programs link the objects of the library, so internal wf_* functions can be tested; tests/support and
# tests/ref are linked into each. A test's labels are its folder plus the words of a comment in its source:
#     ctest: threads serial timeout=300
# `threads` puts it into the TSan run, `serial` keeps other tests away while it runs, `timeout` is in
# seconds (default 240).

find_path(CRITERION_INCLUDE criterion/criterion.h)
find_library(CRITERION_LIBRARY NAMES libcriterion.so criterion)
if(NOT CRITERION_INCLUDE OR NOT CRITERION_LIBRARY)
    message(WARNING "Criterion not found: NO TEST PROGRAM WILL BE BUILT (install libcriterion-dev, or run script/bootstrap)")
    return()
endif()

file(GLOB weft_test_support CONFIGURE_DEPENDS tests/support/*.c tests/ref/*.c)
file(GLOB weft_test_sources CONFIGURE_DEPENDS tests/*/test_*.c)
list(FILTER weft_test_sources EXCLUDE REGEX "/tests/mustfail/")
file(GLOB weft_mustfail_sources CONFIGURE_DEPENDS tests/mustfail/*.c)

if(weft_test_support)
    add_library(weft_test_support OBJECT ${weft_test_support})
    target_link_libraries(weft_test_support PRIVATE weft_flags weft_numerics)
    target_include_directories(weft_test_support SYSTEM PRIVATE ${CRITERION_INCLUDE})
    set(weft_test_support_objects $<TARGET_OBJECTS:weft_test_support>)
endif()

function(weft_test_program name)
    add_executable(${name} ${ARGN} ${weft_test_support_objects})
    target_link_libraries(${name} PRIVATE weft_flags weft_numerics weft_static ${CRITERION_LIBRARY})
    target_include_directories(${name} SYSTEM PRIVATE ${CRITERION_INCLUDE})
    target_compile_definitions(${name} PRIVATE WEFT_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}")
    set_target_properties(${name} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/tests")
endfunction()

foreach(source IN LISTS weft_test_sources)
    get_filename_component(name ${source} NAME_WE)
    get_filename_component(folder ${source} DIRECTORY)
    get_filename_component(folder ${folder} NAME)
    weft_test_program(${name} ${source})
    add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set(labels ${folder} criterion)
    set(timeout 240)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(STRINGS ${source} marks REGEX "ctest:" LIMIT_COUNT 1)
    string(REGEX REPLACE ".*ctest:" "" marks "${marks}")
    string(REGEX MATCHALL "[a-z]+(=[0-9]+)?" marks "${marks}")
    foreach(mark IN LISTS marks)
        if(mark MATCHES "^timeout=([0-9]+)$")
            set(timeout ${CMAKE_MATCH_1})
        else()
            list(APPEND labels ${mark})
        endif()
    endforeach()
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout})
    if("serial" IN_LIST labels)
        set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    endif()
endforeach()

# Every test of this program must fail: script/test runs it and counts. It is not in CTest.
if(weft_mustfail_sources)
    weft_test_program(mustfail ${weft_mustfail_sources})
endif()
