# Fails if a weak function in OBJECTS, which are compiled for the instruction set ISA, does not have that
# instruction set in its name. Other objects may define it, too: the linker keeps any one of them, and the
# code for AVX-512 could run on a CPU that has only SSE2.
#
# A namespace of ours or a type of xsimd in the name will do: tilewise::kernels::avx2, xsimd::avx2,
# xsimd::fma3<xsimd::avx2>, xsimd::avx512bw. Kernels with products of bf16 pairs may share xsimd's functions with those
# without: they are compiled for the same instructions but for these products, which are written as such.
#
# cmake -D NM=<nm> -D ISA=<name> -D OBJECTS=<files> -P weak_symbols.cmake

cmake_minimum_required(VERSION 3.20)

set(marker "(tilewise::[a-z_:]*${ISA}(_f64|_bf16)?::|xsimd::${ISA})")
if(ISA MATCHES "^neon")
  # Conversions between NEON's vector types, which say so in the types of their arguments.
  set(marker "(${marker}|xsimd::kernel::wrap::)")
endif()
set(failed OFF)
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} -C ${object} OUTPUT_VARIABLE symbols RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${NM} cannot read ${object}")
  endif()
  # No list of CMake's: names have brackets and semicolons.
  while(symbols MATCHES "^([^\n]*)\n(.*)$")
    set(line "${CMAKE_MATCH_1}")
    set(symbols "${CMAKE_MATCH_2}")
    if(line MATCHES "^[0-9a-f]+ W (.*)$")
      set(name "${CMAKE_MATCH_1}")
      if(NOT name MATCHES "${marker}")
        message("${object}: weak function without ${ISA} in its name: ${name}")
        set(failed ON)
      endif()
    endif()
  endwhile()
endforeach()
if(failed)
  message(FATAL_ERROR "The linker may put these functions, compiled for ${ISA}, into code for other CPUs.")
endif()
