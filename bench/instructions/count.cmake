# Counts the instructions of fixed shapes under valgrind, and compares them with the figures of this compiler.
#   -D VALGRIND=... -D PROGRAM=<fixed_shapes> -D FIGURES=<file> [-D UPDATE=ON]
# Fails if a count is more than 3 % above its figure. With UPDATE, the counts become the figures. Lines of the file:
# a shape's name and its count.

set(tolerance_percent 3)

if(NOT VALGRIND)
  message("skipped: valgrind is not installed")
  return()
endif()
if(NOT EXISTS "${FIGURES}" AND NOT UPDATE)
  message("skipped: there are no figures for this compiler (${FIGURES})")
  return()
endif()

# Debian's valgrind knows no AVX-512.
set(ENV{TILEWISE_ISA} avx2)

function(count_instructions shape variable)
  execute_process(COMMAND ${VALGRIND} --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no
                          --toggle-collect=tilewise_counted_call ${PROGRAM} ${shape}
                  RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
  string(REGEX MATCH "Collected : ([0-9]+)" found "${text}")
  if(NOT result EQUAL 0 OR NOT found)
    message(FATAL_ERROR "valgrind failed with ${shape}:\n${text}")
  endif()
  set(${variable} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

set(figures "")
if(EXISTS "${FIGURES}")
  file(STRINGS "${FIGURES}" figures)
endif()

execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE shapes COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" shapes "${shapes}")
set(counted "")
set(grown "")
foreach(shape IN LISTS shapes)
  count_instructions(${shape} count)
  string(APPEND counted "${shape} ${count}\n")
  set(figure "")
  foreach(line IN LISTS figures)
    if(line MATCHES "^${shape} ([0-9]+)$")
      set(figure ${CMAKE_MATCH_1})
    endif()
  endforeach()
  if(NOT figure)
    message("${shape}: ${count}, no figure")
    list(APPEND grown ${shape})
    continue()
  endif()
  math(EXPR per_mille "(${count} - ${figure}) * 1000 / ${figure}")
  message("${shape}: ${count}, figure ${figure}, ${per_mille} per mille more")
  math(EXPR most "${figure} + ${figure} * ${tolerance_percent} / 100")
  math(EXPR least "${figure} - ${figure} * ${tolerance_percent} / 100")
  if(count GREATER most)
    list(APPEND grown ${shape})
  elseif(count LESS least)
    message("  fewer than they were: update the figures, or the gain may be lost unseen")
  endif()
endforeach()

if(UPDATE)
  file(WRITE "${FIGURES}" "${counted}")
elseif(grown)
  message(FATAL_ERROR "more than ${tolerance_percent} % above their figures, or without one: ${grown}. If that is meant, "
                      "build the target update_instruction_counts and commit ${FIGURES}")
endif()
