# One STEP of the consumer tests: install the library, build and run the project of that name, or build the
# library once more without exceptions and run the tests that it has then.

cmake_minimum_required(VERSION 3.20)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\nfailed (${result}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# build_project(<source> <cmake argument>...)
function(build_project source)
  run(${CMAKE_COMMAND} -S ${source} -B ${BUILD}/${STEP} -G ${GENERATOR} -D
      CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_BUILD_TYPE=${CONFIGURATION}
      -D CMAKE_RUNTIME_OUTPUT_DIRECTORY=$<1:${BUILD}/${STEP}> ${ARGN})
  run(${CMAKE_COMMAND} --build ${BUILD}/${STEP} --config ${CONFIGURATION} --parallel 2)
endfunction()

if(STEP STREQUAL "install")
  file(REMOVE_RECURSE ${PREFIX})
  run(${CMAKE_COMMAND} --install ${LIBRARY_BUILD} --prefix ${PREFIX} --config ${CONFIGURATION})
  # The library's own headers and nothing else are installed.
  file(GLOB_RECURSE installed RELATIVE ${PREFIX}/include ${PREFIX}/include/*)
  file(GLOB_RECURSE public RELATIVE ${LIBRARY_SOURCE}/include ${LIBRARY_SOURCE}/include/*)
  if(NOT "${installed}" STREQUAL "${public}")
    message(FATAL_ERROR "installed headers: ${installed}\nexpected: ${public}")
  endif()
elseif(STEP STREQUAL "find_package")
  build_project(${CMAKE_CURRENT_LIST_DIR}/${STEP} -D CMAKE_PREFIX_PATH=${PREFIX})
elseif(STEP STREQUAL "add_subdirectory")
  # The library is compiled once more: in Debug, which is quick, and without threads, which must work, too.
  build_project(${CMAKE_CURRENT_LIST_DIR}/${STEP} -D TILEWISE_SOURCE=${LIBRARY_SOURCE} -D CMAKE_BUILD_TYPE=Debug -D TILEWISE_OPENMP=OFF)
elseif(STEP STREQUAL "pkg_config")
  set(ENV{PKG_CONFIG_PATH} ${PREFIX}/${LIBRARY_DIRECTORY}/pkgconfig)
  file(MAKE_DIRECTORY ${BUILD}/${STEP})
  run(sh ${CMAKE_CURRENT_LIST_DIR}/${STEP}/build.sh ${COMPILER} ${PKG_CONFIG} ${BUILD}/${STEP}/consumer
      -Wl,-rpath,${PREFIX}/${LIBRARY_DIRECTORY})
endif()

if(STEP STREQUAL "no_exceptions")
  build_project(${LIBRARY_SOURCE} -D CMAKE_BUILD_TYPE=Debug -D TILEWISE_EXCEPTIONS=OFF -D TILEWISE_BUILD_BENCH=OFF
                -D TILEWISE_INSTRUCTION_SETS=${ISA})
  run(${CMAKE_CTEST_COMMAND} --test-dir ${BUILD}/${STEP} --build-config ${CONFIGURATION} --output-on-failure)
  message("${output}")
elseif(NOT STEP STREQUAL "install")
  run(${BUILD}/${STEP}/consumer)
  message("${output}")
endif()
