# Fails if the shared library LIBRARY exports anything but the functions that HEADERS mark as TILEWISE_API,
# or lacks one of them.
#
# cmake -D NM=<nm> -D LIBRARY=<file> -D HEADERS=<directory> -P exported_symbols.cmake

cmake_minimum_required(VERSION 3.20)

set(public "")
file(GLOB headers ${HEADERS}/*.h ${HEADERS}/tilewise/*.hpp)
foreach(header IN LISTS headers)
  file(READ ${header} text)
  string(REGEX REPLACE "#[^\n]*" "" text "${text}")
  # As far as the opening parenthesis of each declaration; the last word is the name.
  string(REPLACE ";" "," text "${text}")
  string(REGEX MATCHALL "TILEWISE_API [^(]*\\(" declarations "${text}")
  foreach(declaration IN LISTS declarations)
    string(REGEX REPLACE ".*[ \n*&](.*)\\($" "\\1" name "${declaration}")
    list(APPEND public ${name})
  endforeach()
endforeach()
list(REMOVE_DUPLICATES public)

execute_process(COMMAND ${NM} -D -C --defined-only ${LIBRARY} OUTPUT_VARIABLE symbols RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${NM} cannot read ${LIBRARY}")
endif()
set(exported "")
set(failed OFF)
while(symbols MATCHES "^([^\n]*)\n(.*)$")
  set(symbols "${CMAKE_MATCH_2}")
  string(REGEX REPLACE "^[0-9a-f]+ . " "" name "${CMAKE_MATCH_1}")
  if(name IN_LIST public)  # of C
    list(APPEND exported ${name})
  elseif(name MATCHES "^tilewise::(reference::|detail::|onnx::|attention_stream::|kv_cache::)?(~?[a-z0-9_=]+)\\(" AND CMAKE_MATCH_2 IN_LIST public)
    list(APPEND exported ${CMAKE_MATCH_2})
  else()
    message("exported, yet not marked TILEWISE_API in a public header: ${name}")
    set(failed ON)
  endif()
endwhile()
foreach(name IN LISTS public)
  if(NOT name IN_LIST exported)
    message("marked TILEWISE_API, yet not exported: ${name}")
    set(failed ON)
  endif()
endforeach()
if(failed OR NOT public)
  message(FATAL_ERROR "${LIBRARY} does not export what the public headers declare.")
endif()
