# The instruction sets: one line each. A new one is a line here and a predicate in src/isa.cpp.

# Kernels are compiled for each with f32; with f64, if TILEWISE_F64; and, for those CPUs that have them, with products of
# pairs of bf16. TILEWISE_ISAS_<numbers> are the instruction sets that have such kernels, in objects <target>_<isa> or
# <target>_<isa>_<numbers>.
set(TILEWISE_NUMBERS f32 f64 bf16)
set(TILEWISE_DEFINITIONS_f64 TILEWISE_REAL_IS_DOUBLE=1)
set(TILEWISE_DEFINITIONS_bf16 TILEWISE_BF16_PAIRS=1)

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

# tilewise_declare_pairs(<name> <compiler flags>...): more flags, for products of pairs of bf16.
set(TILEWISE_ISAS_bf16 "")
macro(tilewise_declare_pairs name)
  if("${name}" IN_LIST TILEWISE_ISAS)
    list(APPEND TILEWISE_ISAS_bf16 ${name})
    set(TILEWISE_FLAGS_${name}_bf16 ${ARGN})
  endif()
endmacro()

# -march undoes a -march=native among the flags of a surrounding project, which would put instructions into
# the sse2 kernels that the CPU need not have.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  tilewise_declare_isa(sse2 -march=x86-64)
  tilewise_declare_isa(avx2 -march=x86-64 -mavx2 -mfma -mf16c)
  tilewise_declare_isa(avx512 -march=x86-64 -mavx512f -mavx512cd -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma
                       -mprefer-vector-width=512)
  tilewise_declare_pairs(avx512 -mavx512bf16)
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

set(TILEWISE_ISAS_f32 ${TILEWISE_ISAS})
set(TILEWISE_ISAS_f64 "")
if(TILEWISE_F64)
  set(TILEWISE_ISAS_f64 ${TILEWISE_ISAS})
endif()

# tilewise_name_kernels(<variable> <isa> <numbers>): what their objects and their namespace are called.
function(tilewise_name_kernels variable isa numbers)
  if(numbers STREQUAL "f32")
    set(${variable} ${isa} PARENT_SCOPE)
  else()
    set(${variable} ${isa}_${numbers} PARENT_SCOPE)
  endif()
endfunction()

# tilewise_add_objects(<target> <isa> <numbers> <source>): adds to a target one compilation of <source>, with
# TILEWISE_ISA defined as its name.
function(tilewise_add_objects target isa numbers source)
  tilewise_name_kernels(name ${isa} ${numbers})
  set(objects ${target}_${name})
  add_library(${objects} OBJECT ${source})
  # Link-time optimisation could move code between instruction sets.
  set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON INTERPROCEDURAL_OPTIMIZATION OFF
                                              TILEWISE_COMPUTES_WITH ${numbers})
  target_compile_definitions(${objects} PRIVATE TILEWISE_ISA=${name} TILEWISE_ISA_IS_${isa}=1 ${TILEWISE_DEFINITIONS_${numbers}})
  target_compile_options(${objects} PRIVATE ${TILEWISE_FLAGS_${isa}} ${TILEWISE_FLAGS_${isa}_${numbers}})
  target_link_libraries(${objects} PRIVATE tilewise_kernel_settings)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
endfunction()

# tilewise_sources_per_isa(<target> <numbers> <source>): one compilation per instruction set that has them.
function(tilewise_sources_per_isa target numbers source)
  foreach(isa IN LISTS TILEWISE_ISAS_${numbers})
    tilewise_add_objects(${target} ${isa} ${numbers} "${source}")
  endforeach()
endfunction()

# tilewise_list_tables(<variable> <isas> <numbers>): the tables of kernels, each as X(<isa>, <numbers>, <namespace>).
function(tilewise_list_tables variable isas all_numbers)
  set(tables "")
  foreach(numbers IN LISTS all_numbers)
    foreach(isa IN LISTS isas)
      if("${isa}" IN_LIST TILEWISE_ISAS_${numbers})
        tilewise_name_kernels(name ${isa} ${numbers})
        list(APPEND tables "X(${isa}, ${numbers}, ${name})")
      endif()
    endforeach()
  endforeach()
  list(JOIN tables " " tables)
  set(${variable} ${tables} PARENT_SCOPE)
endfunction()
