# What Tilewise is built with: the system's packages when they are there, else pinned versions from the
# network. The installed library needs none of them.

include(FetchContent)

set(missing_dependencies "")

# tilewise_fetch(<name> <repository> <tag> <Debian package> [<FetchContent option>...]): downloads a pinned
# version and adds its CMake project, or else notes what is missing.
macro(tilewise_fetch name repository tag package)
  # FetchContent's own error does not say what to install when there is no network, so look first.
  string(TOUPPER FETCHCONTENT_SOURCE_DIR_${name} given_source)
  if(FETCHCONTENT_FULLY_DISCONNECTED OR DEFINED ${given_source} OR EXISTS ${FETCHCONTENT_BASE_DIR}/${name}-src)
    set(tag_missing 0)
  else()
    execute_process(COMMAND ${CMAKE_COMMAND} -E env GIT_TERMINAL_PROMPT=0 git ls-remote --exit-code ${repository} refs/tags/${tag}
                    RESULT_VARIABLE tag_missing OUTPUT_QUIET ERROR_QUIET TIMEOUT 60)
  endif()
  if(tag_missing)
    list(APPEND missing_dependencies ${package})
  else()
    message(STATUS "${name} is not installed: version ${tag} is used, from ${repository}")
    FetchContent_Declare(${name} GIT_REPOSITORY ${repository} GIT_TAG ${tag} GIT_SHALLOW ON ${ARGN})
    FetchContent_MakeAvailable(${name})
  endif()
endmacro()

# tilewise_find_header(<variable> <header>): the include directory that has it.
function(tilewise_find_header variable header)
  find_path(${variable} ${header} NO_CMAKE_FIND_ROOT_PATH)
  mark_as_advanced(${variable})
  if(${variable} AND CMAKE_CROSSCOMPILING)
    # The build machine's packages will do, yet not all of its include directory: the C library's headers
    # are in there, too.
    get_filename_component(folder ${header} DIRECTORY)
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/host-headers)
    file(CREATE_LINK ${${variable}}/${folder} ${PROJECT_BINARY_DIR}/host-headers/${folder} SYMBOLIC)
    set(${variable} ${PROJECT_BINARY_DIR}/host-headers PARENT_SCOPE)
  endif()
endfunction()

# tilewise_headers(<target> <header> <name> <repository> <tag> <include directory> <Debian package>): makes
# a library of headers into a target, unless a surrounding project did. It is looked for by its header,
# because that works for cross compilers as well, and because some packages' CMake files ask for other
# libraries that we do not use.
macro(tilewise_headers target header name repository tag include_directory package)
  if(NOT TARGET ${target})
    tilewise_find_header(TILEWISE_${name}_HEADERS ${header})
    set(headers ${TILEWISE_${name}_HEADERS})
    if("${name}" STREQUAL "xsimd" AND headers)
      tilewise_check_xsimd()
    endif()
    if(NOT headers)
      tilewise_fetch(${name} ${repository} ${tag} ${package} SOURCE_SUBDIR headers-only)
      set(headers ${${name}_SOURCE_DIR}/${include_directory})
    endif()
    add_library(${target} INTERFACE IMPORTED)
    set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${headers}")
  endif()
endmacro()

# An xsimd that is too old counts as none.
macro(tilewise_check_xsimd)
  file(STRINGS ${headers}/xsimd/config/xsimd_config.hpp xsimd_version REGEX "define XSIMD_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE "[^0-9;]" "" xsimd_version "${xsimd_version}")
  string(REPLACE ";" "." xsimd_version "${xsimd_version}")
  if(xsimd_version VERSION_LESS 8.1)
    message(STATUS "xsimd ${xsimd_version} in ${headers} is too old: 8.1 is needed")
    set(headers "")
  endif()
endmacro()

tilewise_headers(tilewise_xsimd xsimd/xsimd.hpp xsimd https://github.com/xtensor-stack/xsimd.git 13.2.0 include libxsimd-dev)

if(TILEWISE_OPENMP)
  set(openmp_target_is_ours ON)
  if(TARGET OpenMP::OpenMP_CXX)
    set(openmp_target_is_ours OFF)
  endif()
  find_package(OpenMP COMPONENTS CXX)
  if(NOT OpenMP_CXX_FOUND)
    message(STATUS "The compiler has no OpenMP; -DTILEWISE_OPENMP=OFF does without threads")
    list(APPEND missing_dependencies libomp-dev)
  elseif(openmp_target_is_ours)
    # A surrounding project links the library in directories of its own.
    set_target_properties(OpenMP::OpenMP_CXX PROPERTIES IMPORTED_GLOBAL ON)
  endif()
endif()

if(TILEWISE_BUILD_TESTS)
  tilewise_headers(doctest::doctest doctest/doctest.h doctest https://github.com/doctest/doctest.git v2.4.12 "" doctest-dev)
endif()

if(TILEWISE_BUILD_TESTS OR TILEWISE_BUILD_BENCH)
  tilewise_headers(nlohmann_json::nlohmann_json nlohmann/json.hpp json https://github.com/nlohmann/json.git v3.12.0 include
                   nlohmann-json3-dev)
endif()

if(TILEWISE_BUILD_BENCH OR TILEWISE_BUILD_FUZZERS)
  tilewise_headers(CLI11::CLI11 CLI/CLI.hpp cli11 https://github.com/CLIUtils/CLI11.git v2.5.0 include libcli11-dev)
endif()

if(TILEWISE_BUILD_BENCH)
  if(NOT TARGET benchmark::benchmark)
    find_package(benchmark QUIET CONFIG)
  endif()
  if(NOT TARGET benchmark::benchmark)
    set(BENCHMARK_ENABLE_TESTING OFF)
    set(BENCHMARK_ENABLE_INSTALL OFF)
    set(BENCHMARK_ENABLE_WERROR OFF)
    tilewise_fetch(benchmark https://github.com/google/benchmark.git v1.9.4 libbenchmark-dev)
  endif()
endif()

if(missing_dependencies)
  list(JOIN missing_dependencies " " missing_dependencies)
  message(FATAL_ERROR "Tilewise needs packages that are neither on this system nor to be had from the network. By their names "
                      "on Debian and Ubuntu: ${missing_dependencies}. Install them, for example with:\n"
                      "  sh cmake/bootstrap install-dependencies")
endif()
