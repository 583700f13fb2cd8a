# Fails if the library LIBRARY, which is compiled without exceptions and run-time types, refers to either.
#
# cmake -D NM=<nm> -D LIBRARY=<file> -P no_exceptions.cmake

cmake_minimum_required(VERSION 3.20)

execute_process(COMMAND ${NM} ${LIBRARY} OUTPUT_VARIABLE symbols RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR NOT symbols MATCHES "tilewise_attention")
  message(FATAL_ERROR "${NM} cannot read ${LIBRARY}")
endif()
string(REGEX MATCHALL "__cxa_[a-z_]*(throw|catch|exception)[a-z_]*|__gxx_personality_v[0-9]|_Unwind_[A-Za-z]*|_ZTI[A-Za-z0-9_]*"
       found "${symbols}")
if(found)
  list(REMOVE_DUPLICATES found)
  message(FATAL_ERROR "${LIBRARY} refers to exceptions or run-time types: ${found}")
endif()
