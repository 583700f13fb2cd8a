# The instruction sets: one line each. A new one is a line here and a predicate in src/isa.cpp.

set(TILEWISE_ISAS "")
set(TILEWISE_INSTRUCTION_SETS "all" CACHE STRING "Instruction sets to compile kernels for: all, or a list, e.g. avx2;avx512")
set(unknown_isas ${TILEWISE_INSTRUCTION_SETS})
list(REMOVE_ITEM unknown_isas all)
set(declared_isas "")

# tilewise_declare_isa(<name> <compiler flags>...)
macro(tilewise_declare_isa name)
  list(APPEND declared_isas ${name})
  list(REMOVE_ITEM unknown_isas ${name})
  if("all" IN_LIST TILEWISE_INSTRUCTION_SETS OR "${name}" IN_LIST TILEWISE_INSTRUCTION_SETS)
    list(APPEND TILEWISE_ISAS ${name})
    set(TILEWISE_FLAGS_${name} ${ARGN})
  endif()
endmacro()

# tilewise_declare_pairs(<name> <compiler flags>...): kernels with products of bf16 pairs, besides, for those CPUs with
# that instruction set that have them.
set(TILEWISE_PAIRED_ISAS "")
macro(tilewise_declare_pairs name)
  if("${name}" IN_LIST TILEWISE_ISAS)
    list(APPEND TILEWISE_PAIRED_ISAS ${name})
    set(TILEWISE_PAIR_FLAGS_${name} ${ARGN})
  endif()
endmacro()

# -march undoes a -march=native among the flags of a surrounding project, which would put instructions into
# the sse2 kernels that the CPU need not have.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  tilewise_declare_isa(sse2 -march=x86-64)
  tilewise_declare_isa(avx2 -march=x86-64 -mavx2 -mfma -mf16c)
  tilewise_declare_isa(avx512 -march=x86-64 -mavx512f -mavx512cd -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma
                       -mprefer-vector-width=512)
  tilewise_declare_pairs(avx512 ${TILEWISE_FLAGS_avx512} -mavx512bf16)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  tilewise_declare_isa(neon)
  tilewise_declare_pairs(neon -march=armv8.2-a+bf16)
else()
  message(FATAL_ERROR "tilewise: no kernels for the processor '${CMAKE_SYSTEM_PROCESSOR}'; x86_64 and aarch64 are supported")
endif()
if(unknown_isas OR NOT TILEWISE_ISAS)
  list(JOIN declared_isas ", " declared_isas)
  message(FATAL_ERROR "TILEWISE_INSTRUCTION_SETS: '${TILEWISE_INSTRUCTION_SETS}' given, it must be all, or some of ${declared_isas}")
endif()

# One compilation of <source> for a target, for an instruction set that has the name <name> there.
function(tilewise_add_objects target source name isa)
  set(objects ${target}_${name})
  add_library(${objects} OBJECT ${source})
  # Link-time optimisation could move code between instruction sets.
  set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON INTERPROCEDURAL_OPTIMIZATION OFF)
  target_compile_definitions(${objects} PRIVATE TILEWISE_ISA=${name} TILEWISE_ISA_IS_${isa}=1)
  target_compile_options(${objects} PRIVATE ${ARGN})
  target_link_libraries(${objects} PRIVATE tilewise_kernel_settings)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
endfunction()

# tilewise_sources_per_isa(<target> <source>): adds to a target one compilation of <source> per instruction
# set, with its flags and with TILEWISE_ISA defined as its name.
function(tilewise_sources_per_isa target source)
  foreach(isa IN LISTS TILEWISE_ISAS)
    tilewise_add_objects(${target} "${source}" ${isa} ${isa} ${TILEWISE_FLAGS_${isa}})
  endforeach()
endfunction()

# tilewise_sources_in_pairs(<target> <source>): the same for products of bf16 pairs; TILEWISE_ISA is <isa>_bf16.
function(tilewise_sources_in_pairs target source)
  foreach(isa IN LISTS TILEWISE_PAIRED_ISAS)
    tilewise_add_objects(${target} "${source}" ${isa}_bf16 ${isa} ${TILEWISE_PAIR_FLAGS_${isa}})
    target_compile_definitions(${target}_${isa}_bf16 PRIVATE TILEWISE_BF16_PAIRS=1)
  endforeach()
endfunction()
