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

# -march undoes a -march=native among the flags of a surrounding project, which would put instructions into
# the sse2 kernels that the CPU need not have.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  tilewise_declare_isa(sse2 -march=x86-64)
  tilewise_declare_isa(avx2 -march=x86-64 -mavx2 -mfma -mf16c)
  tilewise_declare_isa(avx512 -march=x86-64 -mavx512f -mavx512cd -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma
                       -mprefer-vector-width=512)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  tilewise_declare_isa(neon)
else()
  message(FATAL_ERROR "tilewise: no kernels for the processor '${CMAKE_SYSTEM_PROCESSOR}'; x86_64 and aarch64 are supported")
endif()
if(unknown_isas OR NOT TILEWISE_ISAS)
  list(JOIN declared_isas ", " declared_isas)
  message(FATAL_ERROR "TILEWISE_INSTRUCTION_SETS: '${TILEWISE_INSTRUCTION_SETS}' given, it must be all, or some of ${declared_isas}")
endif()

# tilewise_add_objects(<target> <isa> <name> <source>): adds to a target one compilation of <source>, as objects
# <target>_<name>, with the flags of an instruction set and with TILEWISE_ISA defined as <name>.
function(tilewise_add_objects target isa name source)
  set(objects ${target}_${name})
  add_library(${objects} OBJECT ${source})
  # Link-time optimisation could move code between instruction sets.
  set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON INTERPROCEDURAL_OPTIMIZATION OFF)
  target_compile_definitions(${objects} PRIVATE TILEWISE_ISA=${name} TILEWISE_ISA_IS_${isa}=1)
  target_compile_options(${objects} PRIVATE ${TILEWISE_FLAGS_${isa}})
  target_link_libraries(${objects} PRIVATE tilewise_kernel_settings)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
endfunction()

# tilewise_sources_per_isa(<target> <source>): one compilation per instruction set.
function(tilewise_sources_per_isa target source)
  foreach(isa IN LISTS TILEWISE_ISAS)
    tilewise_add_objects(${target} ${isa} ${isa} "${source}")
  endforeach()
endfunction()

# The same for kernels that compute in f64, as objects <target>_<isa>_f64.
function(tilewise_add_f64_objects target isa source)
  tilewise_add_objects(${target} ${isa} ${isa}_f64 "${source}")
  target_compile_definitions(${target}_${isa}_f64 PRIVATE TILEWISE_REAL_IS_DOUBLE=1)
  set_target_properties(${target}_${isa}_f64 PROPERTIES TILEWISE_COMPUTES_F64 ON)
endfunction()
function(tilewise_f64_sources_per_isa target source)
  foreach(isa IN LISTS TILEWISE_ISAS)
    tilewise_add_f64_objects(${target} ${isa} "${source}")
  endforeach()
endfunction()
