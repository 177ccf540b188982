# cmake/WeftLibrary.cmake -- libweft.so and libweft.a from one set of objects.
#
# weft_ir    jit/ir, also linked into libweft-llvm: the vocabulary both sides share
# weft_core  everything else; jit/codegen_cuda belongs here because NVRTC and the driver are dlopened
# weft_<isa> eager/kernels/*.inc.c, compiled once per instruction set with WF_ISA=<isa>; those of weft_<isa>_plain, whose
#            loops gain nothing by it, without -O3

# Programs of sanitized tests take what is internal from one shared library (weft_inside).
set(weft_hidden $<$<NOT:$<BOOL:${WEFT_INSIDE}>>:-fvisibility=hidden>)
file(GLOB weft_ir_sources CONFIGURE_DEPENDS jit/ir/*.c)
file(GLOB weft_core_sources CONFIGURE_DEPENDS
    eager/*.c eager/cpu/*.c eager/cuda/*.c eager/kernels/*.c autograd/*.c
    jit/*.c jit/passes/*.c jit/gpu/*.c jit/codegen_cuda/*.c nn/*.c io/*.c data/*.c
    jit/codegen_cpu/render*.c jit/codegen_cpu/backend*.c) # text needs no LLVM
list(FILTER weft_core_sources EXCLUDE REGEX "\\.inc\\.c$")
file(GLOB weft_isa_sources CONFIGURE_DEPENDS eager/kernels/*.inc.c)
# Loops of one or two instructions an element, and copies and reductions, which are unrolled by hand: -O3 peels, unrolls and
# versions them to half again their size (190 KB of the 4 MB). What it does help: products with a vector by 1.4.
file(GLOB weft_plain_sources CONFIGURE_DEPENDS eager/kernels/map_i*.inc.c eager/kernels/map_u8.inc.c
    eager/kernels/cast.inc.c eager/kernels/copy.inc.c eager/kernels/gemm_int.inc.c eager/kernels/map_vjp_rare_f64.inc.c eager/kernels/program.inc.c
    eager/kernels/reduce.inc.c eager/kernels/scan.inc.c eager/kernels/sdpa.inc.c)
list(REMOVE_ITEM weft_isa_sources ${weft_plain_sources})
# With 16 registers -O3 spills what it unrolls: the same speed, 34 KB more. (But of f64's derivatives gelu's is vectorised by it alone.)
file(GLOB weft_plain_sources_avx2 CONFIGURE_DEPENDS eager/kernels/map_f*.inc.c eager/kernels/map_vjp_f32.inc.c eager/kernels/rowwise.inc.c)

# clang unrolls loops at -O2 already, a tenth of the library. Loops that ask are unrolled, and files that gain by it:
# products with a vector 4 times as fast, any 1.5, gathers 1.3.
set(no_unroll $<$<AND:$<CONFIG:Release>,$<C_COMPILER_ID:Clang>>:-fno-unroll-loops>)
set(weft_object_sets "")
# Frames of released code carry no unwind tables (docs/building.md: what that costs); checked builds keep them.
set(no_unwind "")
if(NOT WEFT_SANITIZE)
    set(no_unwind $<$<CONFIG:Release>:-fno-asynchronous-unwind-tables> $<$<CONFIG:Release>:-fno-unwind-tables>)
endif()
function(weft_objects name)
    if(NOT ARGN)
        return()
    endif()
    add_library(${name} OBJECT ${ARGN})
    target_link_libraries(${name} PRIVATE weft_flags weft_numerics)
    # The library's own calls carry no sites: theirs would stand where the program's line belongs.
    target_compile_definitions(${name} PRIVATE WEFT_NO_SITES=)
    target_compile_options(${name} PRIVATE ${weft_hidden} -ffunction-sections -fdata-sections ${no_unwind} ${no_unroll})
    list(APPEND weft_object_sets ${name})
    set(weft_object_sets "${weft_object_sets}" PARENT_SCOPE)
endfunction()

weft_objects(weft_ir ${weft_ir_sources})
weft_objects(weft_core ${weft_core_sources})

# zlib, for compressed .npz and profiles and the text of GPU kernels: into libweft.so, so that it needs the C library only; libweft.a's users link it.
set(weft_zlib "")
set(weft_pc_zlib "")
if(NOT WEFT_DEFLATE STREQUAL "OFF")
    find_path(WEFT_ZLIB_INCLUDE zlib.h)
    find_library(WEFT_ZLIB_STATIC libz.a)
    if(WEFT_ZLIB_INCLUDE AND WEFT_ZLIB_STATIC)
        set(weft_zlib ${WEFT_ZLIB_STATIC})
        set(weft_pc_zlib " -lz")
        set_property(SOURCE io/inflate.c eager/gzip.c APPEND PROPERTY COMPILE_DEFINITIONS WF_HAVE_ZLIB)
    elseif(WEFT_DEFLATE STREQUAL "ON")
        message(FATAL_ERROR "WEFT_DEFLATE=ON, but zlib.h or libz.a is missing (zlib1g-dev)")
    endif()
endif()
if(weft_zlib)
    message(STATUS "Compressed .npz: read, compressed profiles: written, by ${weft_zlib}")
else()
    message(STATUS "Compressed .npz and profiles: refused, zlib is missing (zlib1g-dev) or WEFT_DEFLATE=OFF")
endif()

# Kernels on disk are found by the version of what wrote them: a hash of the generator's sources.
function(weft_generator file macro)
    file(GLOB sources CONFIGURE_DEPENDS ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})
    set(all "")
    foreach(source IN LISTS sources)
        file(SHA256 ${source} hash)
        string(SHA256 all "${all}${hash}")
    endforeach()
    string(SUBSTRING "${all}" 0 16 all)
    set_source_files_properties(${file} PROPERTIES COMPILE_DEFINITIONS "${macro}=\"${all}\"")
endfunction()
foreach(file IN ITEMS backend llvm) # both libraries have it, and are used together if they agree
    weft_generator(jit/codegen_cpu/${file}.c WF_LL_GENERATOR jit/codegen_cpu/render* jit/codegen_cpu/llvm*.[ch]
        jit/ir/backend.h) # (it says how large a launch's frame is)
endforeach()
# Kernels written by hand go into the library as text, without comments (but those where sections begin) and
# indentation: two thirds of it; where there is zlib, compressed: a fifth of that.
set(weft_cuda_text "")
foreach(name IN ITEMS kernels attention)
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/jit/codegen_cuda/${name}.cuh)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(READ ${source} text)
    string(REGEX REPLACE "/[*] == ([a-z0-9_]+)([^*]|[*]+[^*/])*[*]+/" "<section \\1>" text "${text}")
    string(REGEX REPLACE "/[*]([^*]|[*]+[^*/])*[*]+/" "" text "${text}")
    string(REGEX REPLACE "<section ([a-z0-9_]+)>" "/* == \\1 */" text "${text}")
    string(REGEX REPLACE "\n[ \n]+" "\n" text "${text}")
    string(APPEND weft_cuda_text "${text}")
endforeach()
set(weft_cuda_file ${CMAKE_CURRENT_BINARY_DIR}/cuda/text.cuh)
file(CONFIGURE OUTPUT ${weft_cuda_file} CONTENT "${weft_cuda_text}" @ONLY)
set(weft_cuda_defines "")
if(weft_zlib)
    file(SIZE ${weft_cuda_file} size)
    if(${weft_cuda_file} IS_NEWER_THAN ${weft_cuda_file}.gz) # or there is none
        file(ARCHIVE_CREATE OUTPUT ${weft_cuda_file}.gz PATHS ${weft_cuda_file} FORMAT raw
            COMPRESSION GZip COMPRESSION_LEVEL 9)
    endif()
    set(weft_cuda_file ${weft_cuda_file}.gz)
    set(weft_cuda_defines WF_CU_TEXT_SIZE=${size})
endif()
set_source_files_properties(jit/codegen_cuda/hand.c PROPERTIES
    OBJECT_DEPENDS "${weft_cuda_file}" COMPILE_DEFINITIONS "WF_CU_TEXT=\"${weft_cuda_file}\";${weft_cuda_defines}")
weft_generator(jit/codegen_cuda/backend.c WF_CU_GENERATOR jit/codegen_cuda/* jit/ir/cuda_text.h)

# -fno-thread-jumps: gcc threads nested SELECTs into control flow and pieces them together again with
# more masks (log: 0.35 to 0.21 ns an element); what partial PRE makes of the rest it may not vectorise.
function(weft_isa isa opt plain)
    set(sources ${weft_isa_sources})
    list(REMOVE_ITEM sources ${weft_plain_sources_${isa}})
    weft_objects(weft_${isa} ${sources})
    weft_objects(weft_${isa}_plain ${weft_plain_sources} ${weft_plain_sources_${isa}})
    set(weft_object_sets "${weft_object_sets}" PARENT_SCOPE)
    target_compile_options(weft_${isa} PRIVATE ${opt})
    target_compile_options(weft_${isa}_plain PRIVATE ${plain})
    foreach(set IN ITEMS weft_${isa} weft_${isa}_plain)
        target_compile_definitions(${set} PRIVATE WF_ISA=${isa})
        target_compile_options(${set} PRIVATE ${ARGN}
            $<$<C_COMPILER_ID:GNU>:-fno-thread-jumps> $<$<C_COMPILER_ID:GNU>:-fno-tree-partial-pre>)
    endforeach()
endfunction()

# The library's size is a promise (4 MB): code that is run once or is not timed is compiled small. Under TSan and ASan it is not
# optimised, which takes a quarter to half of the time, and the tests little longer; what the tests reckon with stays as it is.
set(small $<$<AND:$<CONFIG:Release>,$<C_COMPILER_ID:GNU>>:-Os>$<$<AND:$<CONFIG:Release>,$<C_COMPILER_ID:Clang>>:-Oz>)
set(small_kernels ${small})
if(WEFT_SANITIZE STREQUAL "thread" AND CMAKE_C_COMPILER_ID MATCHES "Clang")
    set(small -O0)
    set(small_kernels -O0)
elseif(WEFT_SANITIZE STREQUAL "address" AND CMAKE_C_COMPILER_ID MATCHES "Clang")
    set(small -O0)
    set(small_kernels -O0) # but for those below
endif()
file(GLOB weft_small CONFIGURE_DEPENDS jit/ir/kir*.c jit/ir/dict_kir.c jit/ir/kernel.c jit/ir/interp*.c jit/ir/flops.c jit/ir/ir_text.c jit/ir/symbols.c jit/ir/extents.c jit/ir/verify.c eager/program_verify.c jit/plan_verify.c jit/plan_validate.c jit/plan_page.c
    eager/profile*.c eager/print.c eager/doctor.c eager/env.c eager/error.c eager/dlpack.c eager/cuda/*.c
    jit/gpu/*.c jit/codegen_cuda/*.c jit/codegen_cpu/render*.c jit/diskcache.c jit/lower*.c jit/kernels_build.c
    jit/passes/*.c jit/frozen.c jit/frozen_draw.c jit/plan_rows.c jit/plan_choose.c jit/plan_cost.c jit/plan_after.c jit/plan_build.c jit/plan_parts.c jit/plan_buffers.c
    jit/plan_arena.c jit/plan_batch.c jit/plan_explain.c jit/plan_note.c jit/codegen_cpu/backend*.c jit/kernels.c jit/kernels_history.c eager/program.c
    jit/table*.c jit/call_table.c jit/record_state.c eager/roofline.c eager/cpuid.c eager/meta.c eager/weak.c jit/plan.c jit/ir/build.c jit/ir/fold.c jit/ir/sites.c
    jit/device_*.c jit/capture.c jit/explain.c jit/doctor.c eager/device.c eager/device_run.c autograd/vjp_nn.c autograd/vjp_reduce.c autograd/tape_text.c autograd/check.c autograd/api.c autograd/custom.c autograd/remat.c
    autograd/hooks.c autograd/jvp.c eager/api_array.c eager/api_select.c eager/api_nn.c eager/api_loss.c eager/api_einsum.c eager/api_index.c eager/api_resample.c
    eager/api_random.c eager/oom.c eager/scan.c eager/report.c eager/live.c eager/account.c eager/cpu/dnnl*.c
    eager/cpu/conv.c eager/cpu/conv_builtin.c eager/cpu/conv_columns.c eager/cpu/conv_depthwise.c eager/cpu/conv_line.c eager/cpu/conv_padding.c nn/*.c io/*.c)
# But not what queues every op of a device.
set(weft_device_path eager/device_call eager/device_run eager/cuda/blaslt eager/cuda/blaslt_view eager/cuda/cache eager/cuda/device
    eager/cuda/memory eager/cuda/module eager/cuda/plans eager/cuda/stream eager/cuda/words jit/device_gpu jit/device_rows
    jit/gpu/hand jit/gpu/known jit/gpu/launch jit/gpu/map jit/gpu/program jit/gpu/row jit/gpu/row_norm jit/gpu/row_product
    nn/clip nn/optim nn/update)
list(TRANSFORM weft_device_path APPEND .c)
list(TRANSFORM weft_device_path PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE weft_not_small)
list(REMOVE_ITEM weft_small ${weft_not_small})
if(WEFT_SANITIZE STREQUAL "address")
    # More that is not called for each op or element: what is called once a step or a kernel, or where a device is.
    file(GLOB weft_seldom CONFIGURE_DEPENDS autograd/parts.c autograd/vjp_*.c eager/conv.c eager/cpu/amx*.c eager/cuda/*.c
        eager/device*.c eager/inplace.c eager/loss.c eager/matmul.c eager/move.c eager/norm*.c eager/pool2d.c eager/resample.c eager/sdpa.c
        eager/sort.c jit/call_*.c jit/device_*.c jit/frozen*.c jit/gpu/*.c jit/ir/infer_*.c jit/ir/kir_r*.c jit/ir/kir_vjp.c jit/kernels_rows.c jit/record_lines.c
        jit/trace.c nn/*.c)
    list(APPEND weft_small ${weft_seldom})
    list(REMOVE_DUPLICATES weft_small)
    # The oracle of random functions, and loops over elements.
    list(FILTER weft_small EXCLUDE REGEX "/jit/ir/(interp|kir(_[^rv]|\\.))|/eager/(live|scan|cpu/conv_)|/jit/(plan_verify|passes/(fuse|layout|space))\\.")
endif()
foreach(source IN LISTS weft_small)
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${small})
endforeach()

# What clang makes twice as large by unrolling for elements that are looked at one by one, and what calls kernels (37 KB).
set_property(SOURCE eager/pool2d.c eager/move.c eager/scan.c eager/sort.c eager/reduce.c eager/norm.c eager/inplace.c APPEND PROPERTY
    COMPILE_OPTIONS $<$<AND:$<CONFIG:Release>,$<C_COMPILER_ID:Clang>>:-Oz>)

# What a call on small tensors runs through: gcc copies and zeros structs of a few lines by string instructions, which
# take longer to start than a few vector stores to run, and copies of unknown length (a few extents) likewise.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(vector_copies
        $<$<C_COMPILER_ID:GNU>:-mmemcpy-strategy=vector_loop:256:noalign,libcall:-1:noalign>
        $<$<C_COMPILER_ID:GNU>:-mmemset-strategy=vector_loop:512:noalign,libcall:-1:noalign>)
    foreach(source IN ITEMS
            eager/api eager/api_ops eager/api_view eager/call eager/create eager/ctx eager/dispatch eager/dispatch_rows
            eager/elementwise eager/inplace eager/map eager/norm eager/program_map eager/program_rows eager/program_space
            eager/quick eager/reduce eager/reduce_exec eager/rows eager/rowwise eager/slot eager/storage eager/tile eager/view_ops
            autograd/backward autograd/tape autograd/tape_record autograd/vjp_reduce autograd/vjp_rows
            jit/call jit/call_eager jit/call_frozen jit/call_plans jit/call_region jit/call_ways jit/frozen_guard jit/frozen_run jit/kernels_run jit/key jit/plan_choose jit/plan_run jit/record jit/record_quick jit/trace
            jit/ir/infer_nn jit/ir/infer_reduce jit/ir/infer_view jit/ir/ir jit/ir/rows)
        set_property(SOURCE ${source}.c APPEND PROPERTY COMPILE_OPTIONS ${vector_copies})
    endforeach()
    set_property(SOURCE ${weft_device_path} APPEND PROPERTY COMPILE_OPTIONS ${vector_copies})
endif()

# Kernels are half of the time of a sanitized build. The copies are one source: UBSan's checks of pointers, which double
# it, stay in the first copy; ASan watches the memory of all. Fuzz targets read files and leave kernels alone.
set(wide_sanitize "")
if(WEFT_SANITIZE STREQUAL "address")
    set(wide_sanitize -fno-sanitize=object-size,null,alignment,pointer-overflow)
elseif(WEFT_SANITIZE STREQUAL "fuzzer")
    set(small_kernels -fno-sanitize=all)
    set(wide_sanitize -fno-sanitize=all)
endif()
if(WEFT_SANITIZE STREQUAL "address" AND CMAKE_C_COMPILER_ID MATCHES "Clang")
    # What the first copy reckons much in; and the largest file of all, which works on rows, in every copy.
    set_property(SOURCE eager/kernels/gemm_micro.inc.c eager/kernels/gemm_vector.inc.c eager/kernels/gemm_int.inc.c
        eager/kernels/program.inc.c eager/kernels/reduce.inc.c eager/kernels/sums.inc.c APPEND PROPERTY COMPILE_OPTIONS -O1)
    set_property(SOURCE eager/kernels/rowwise.inc.c APPEND PROPERTY COMPILE_OPTIONS -O0)
endif()
# Scalar ends of vector loops are not unrolled completely: up to 15 copies of an element nobody waits for.
set(kernel_tails $<$<AND:$<CONFIG:Release>,$<C_COMPILER_ID:GNU>>:--param=max-completely-peel-times=8$<SEMICOLON>--param=max-completely-peeled-insns=100>)
# The first copy is for machines that nobody times: -Os of gcc 12 leaves its loops alone, clang's does not.
set(scalar $<$<AND:$<CONFIG:Release>,$<C_COMPILER_ID:Clang>>:-fno-vectorize$<SEMICOLON>-fno-slp-vectorize>)
set(kernel_no_tails $<$<AND:$<CONFIG:Release>,$<C_COMPILER_ID:GNU>>:--param=max-completely-peel-times=2$<SEMICOLON>--param=max-completely-peeled-insns=40$<SEMICOLON>-fno-peel-loops>)
set(kernel_opt $<$<CONFIG:Release>:-O3>)
set(kernel_plain $<$<AND:$<CONFIG:Release>,$<C_COMPILER_ID:GNU>>:-ftree-vectorize$<SEMICOLON>-fvect-cost-model=dynamic>)
# Sanitized builds leave out the copy for AVX-512 where this processor cannot run it (a fifth of the time for kernels): releases of gcc and
# clang compile it. Its tables are AVX2's by name, and the level is never taken. Other copies that cannot run are compiled, but neither watched
# nor optimised. And what threads do to each other the best copy shows (tests/support/effort.h).
set(weft_without_avx512 OFF)
if(WEFT_SANITIZE)
    # gcc's intrinsics are macros at -O0, and its warnings other ones
    set(unwatched -fno-sanitize=all $<$<C_COMPILER_ID:Clang>:-O0>)
    if(NOT weft_best STREQUAL "avx512")
        set(weft_without_avx512 ON)
        set(unwatched_avx512 ${unwatched})
    endif()
    if(weft_best STREQUAL "sse2")
        set(unwatched_avx2 ${unwatched})
    endif()
    foreach(isa IN ITEMS sse2 avx2)
        if(WEFT_SANITIZE STREQUAL "thread" AND NOT DEFINED unwatched_${isa} AND NOT weft_best STREQUAL isa)
            set(unwatched_${isa} -fno-sanitize=all)
        endif()
    endforeach()
endif()
# Ends of loops are no vectors, for size, but those of AVX-512's copies of some files: what is left of its longest vectors may be 63 elements,
# and rows of fewer would be all of it. (Halves of 16 columns and more, bytes, truth values: 1.3 to 3 times AVX2's time.)
set(no_epilogues $<$<C_COMPILER_ID:GNU>:--param=vect-epilogues-nomask=0>)
set(weft_epilogues cast reduce scan map_i8 map_u8 map_i16 rowwise)
list(TRANSFORM weft_epilogues REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/eager/kernels/\\1.inc.c")
file(GLOB weft_no_epilogues CONFIGURE_DEPENDS eager/kernels/*.inc.c)
list(REMOVE_ITEM weft_no_epilogues ${weft_epilogues})
set_property(SOURCE ${weft_no_epilogues} APPEND PROPERTY COMPILE_OPTIONS ${no_epilogues})
weft_isa(sse2 "${small_kernels};${scalar}" "${small_kernels};${scalar}" ${unwatched_sse2})
weft_isa(avx2 "${kernel_opt}" "${kernel_plain}" -march=x86-64-v3 ${no_epilogues} ${wide_sanitize} ${unwatched_avx2})
if(weft_without_avx512)
    file(GLOB headers CONFIGURE_DEPENDS eager/*.h eager/cpu/*.h eager/kernels/*.h)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${headers})
    set(names "")
    foreach(header IN LISTS headers)
        file(READ ${header} text)
        string(REGEX MATCHALL "extern const [^;]*_avx512[^;]*;" text "${text}")
        string(REGEX MATCHALL "wf_[a-z0-9_]+_avx512" text "${text}")
        list(APPEND names ${text})
    endforeach()
    list(TRANSFORM names REPLACE "(.*)_avx512" "#define \\1_avx512 \\1_avx2\n")
    string(CONCAT names ${names})
    set(weft_names ${CMAKE_CURRENT_BINARY_DIR}/without_avx512.h)
    file(CONFIGURE OUTPUT ${weft_names} CONTENT "${names}" @ONLY)
    target_compile_options(weft_flags INTERFACE "SHELL:-include ${weft_names}")
    set_property(SOURCE eager/cpuid.c APPEND PROPERTY COMPILE_DEFINITIONS WF_WITHOUT_AVX512)
else()
    weft_isa(avx512 "${kernel_opt}" "${kernel_plain}" -march=x86-64-v4 -mprefer-vector-width=512 ${wide_sanitize} ${unwatched_avx512})
endif()

# A loop of a few instructions that lies across two lines of code takes up to twice as long, and gcc aligns loops to 16 bytes only.
# (What is reached by jumps alone it aligns, too: that is size.)
file(GLOB weft_short_loops CONFIGURE_DEPENDS eager/kernels/map_*.inc.c eager/kernels/cast.inc.c eager/kernels/copy.inc.c eager/kernels/update.inc.c)
set_property(SOURCE ${weft_short_loops} APPEND PROPERTY COMPILE_OPTIONS
    $<$<AND:$<CONFIG:Release>,$<C_COMPILER_ID:GNU>>:-falign-loops=32> $<$<AND:$<CONFIG:Release>,$<C_COMPILER_ID:GNU>>:-fno-align-jumps>)

# Of the largest not at all (110 KB).
set(weft_no_tails_sources eager/kernels/map_f64.inc.c eager/kernels/map_vjp_f64.inc.c eager/kernels/rowwise.inc.c)
set_property(SOURCE ${weft_no_tails_sources} APPEND PROPERTY COMPILE_OPTIONS ${kernel_no_tails})
file(GLOB weft_tails_sources CONFIGURE_DEPENDS eager/kernels/map_*.inc.c eager/kernels/reduce.inc.c eager/kernels/gemm_micro.inc.c)
list(TRANSFORM weft_no_tails_sources PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE weft_no_tails_sources)
list(REMOVE_ITEM weft_tails_sources ${weft_no_tails_sources})
set_property(SOURCE ${weft_tails_sources} APPEND PROPERTY COMPILE_OPTIONS ${kernel_tails})

set_property(SOURCE eager/index.c eager/kernels/gemm_vector.inc.c eager/kernels/sums.inc.c APPEND PROPERTY
    COMPILE_OPTIONS $<$<AND:$<CONFIG:Release>,$<C_COMPILER_ID:Clang>>:-funroll-loops>)

# Called where the machine has matrix units only.
set_property(SOURCE eager/kernels/gemm_amx.c APPEND PROPERTY COMPILE_OPTIONS
    -march=x86-64-v4 -mprefer-vector-width=512 -mprfchw -mavx512bf16 -mamx-tile -mamx-bf16 ${unwatched_avx512})
# And where it multiplies pairs of bf16 in vectors.
set_property(SOURCE eager/kernels/gemm_pairs.c APPEND PROPERTY COMPILE_OPTIONS
    -march=x86-64-v4 -mprefer-vector-width=512 -mavx512bf16 ${unwatched_avx512})
# clang's ASan looks at every element of a masked vector: in line that is 17 s of this one file, as calls 3.
if(WEFT_SANITIZE MATCHES "^(address|fuzzer)$" AND CMAKE_C_COMPILER_ID MATCHES "Clang")
    set_property(SOURCE eager/kernels/gemm_pairs.c APPEND PROPERTY COMPILE_OPTIONS
        -mllvm -asan-instrumentation-with-call-threshold=0)
endif()
# Or has AVX-512.
set_property(SOURCE eager/kernels/conv_turn.c APPEND PROPERTY COMPILE_OPTIONS
    -march=x86-64-v4 -mprefer-vector-width=512 ${unwatched_avx512})

set(weft_objects_all "")
foreach(set IN LISTS weft_object_sets)
    list(APPEND weft_objects_all $<TARGET_OBJECTS:${set}>)
endforeach()
if(NOT weft_object_sets)
    message(FATAL_ERROR "no library sources found under ${CMAKE_CURRENT_SOURCE_DIR}")
endif()

add_library(weft SHARED ${weft_objects_all})
add_library(weft_static STATIC ${weft_objects_all})
add_library(weft::weft ALIAS weft)
add_library(weft::weft_static ALIAS weft_static)
set_target_properties(weft weft_static PROPERTIES LINKER_LANGUAGE C)
set_target_properties(weft PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/cmake/weft.map")
set_target_properties(weft_static PROPERTIES OUTPUT_NAME weft EXPORT_NAME weft_static)
# nodelete: pool threads and thread-exit handlers run code of the library after a dlclose.
target_link_options(weft PRIVATE
    "-Wl,--version-script,${CMAKE_CURRENT_SOURCE_DIR}/cmake/weft.map" -Wl,--gc-sections
    -Wl,--as-needed -Wl,-Bsymbolic -Wl,-z,nodelete)
# The table's 4500 addresses in 2 KB instead of 108. A C library before 2.36 cannot load that: OFF for binaries that go there.
option(WEFT_RELR "Pack relative relocations (glibc 2.36 or later)" ON)
include(CheckLinkerFlag)
check_linker_flag(C -Wl,-z,pack-relative-relocs weft_can_pack)
if(WEFT_RELR AND weft_can_pack AND NOT WEFT_SANITIZE) # whose linker may be another
    target_link_options(weft PRIVATE -Wl,-z,pack-relative-relocs)
endif()
if(NOT WEFT_SANITIZE) # a sanitizer's run-time comes with the program
    target_link_options(weft PRIVATE -Wl,-z,defs)
endif()
foreach(lib weft weft_static)
    target_include_directories(${lib} INTERFACE
        $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
target_link_libraries(weft PRIVATE m ${CMAKE_DL_LIBS} Threads::Threads ${weft_zlib})
target_link_libraries(weft_static PUBLIC m ${CMAKE_DL_LIBS} Threads::Threads)
if(weft_zlib)
    add_library(weft_sums OBJECT io/raw/sums.c)
    target_link_libraries(weft_sums PRIVATE weft_flags)
    target_compile_options(weft_sums PRIVATE ${weft_hidden} ${no_unwind})
    set_property(TARGET weft_sums PROPERTY POSITION_INDEPENDENT_CODE ON)
    target_sources(weft PRIVATE $<TARGET_OBJECTS:weft_sums>)
    target_link_libraries(weft_static PUBLIC $<BUILD_INTERFACE:${weft_zlib}> $<INSTALL_INTERFACE:z>)
endif()
# The type of a function stands before it, where clang compiled it: not before LLVM's kernels, nor need memory be there.
if(WEFT_SANITIZE AND CMAKE_C_COMPILER_ID MATCHES "Clang")
    set_property(SOURCE jit/codegen_cpu/backend.c APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=function)
endif()
# All of it, with what is internal, for test programs: as libweft.a each would hold 20 MB of it.
if(WEFT_INSIDE)
    add_library(weft_inside SHARED EXCLUDE_FROM_ALL ${weft_objects_all})
    set_target_properties(weft_inside PROPERTIES LINKER_LANGUAGE C)
    target_link_options(weft_inside PRIVATE -Wl,-Bsymbolic -Wl,-z,nodelete)
    target_link_libraries(weft_inside PUBLIC m ${CMAKE_DL_LIBS} Threads::Threads ${weft_zlib})
    target_include_directories(weft_inside INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/include)
else()
    add_library(weft_inside ALIAS weft_static)
endif()
