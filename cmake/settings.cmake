# How everything of ours is compiled. Nothing here reaches a user of the library.

include(CheckCXXCompilerFlag)

# The result is a fixed sequence of roundings: the compiler may neither fuse nor reorder any, not even when
# the flags of a surrounding project ask for it.
set(exact_arithmetic_options -fno-fast-math -ffp-contract=off)

set(warning_options -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wcast-align
    -Wnon-virtual-dtor -Woverloaded-virtual -Wundef)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # Wrong about std::string (GCC bug 105651).
  list(APPEND warning_options -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND TILEWISE_SANITIZE)
  # Wrong about std::regex once it is instrumented (GCC bug 105562).
  list(APPEND warning_options -Wno-maybe-uninitialized)
endif()
if(TILEWISE_WERROR)
  list(APPEND warning_options -Werror)
endif()

# For src, besides: a promotion by accident would be another arithmetic.
set(exact_warning_options -Wdouble-promotion)

# For src, tests and bench.
add_library(tilewise_settings INTERFACE)
target_compile_features(tilewise_settings INTERFACE cxx_std_20)
target_compile_options(tilewise_settings INTERFACE ${warning_options} ${exact_arithmetic_options})

# For the kernels. They throw nothing, and they are optimised in Debug, too: what the compiler does not inline
# of xsimd's small functions becomes weak symbols that the linker merges between instruction sets.
add_library(tilewise_kernel_settings INTERFACE)
target_link_libraries(tilewise_kernel_settings INTERFACE tilewise_settings tilewise_xsimd)
target_include_directories(tilewise_kernel_settings INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
# Targets that set TILEWISE_OPTIMIZATION have that instead: see tests/optimization.cmake.
set(optimization $<TARGET_PROPERTY:TILEWISE_OPTIMIZATION>)
target_compile_options(tilewise_kernel_settings INTERFACE $<IF:$<BOOL:${optimization}>,${optimization},-O3> -fno-exceptions -fno-rtti -fvisibility=hidden
                                                          -fvisibility-inlines-hidden -Wno-psabi)
# Otherwise a loop is up to 2 % slower or faster depending on where code before it happens to end.
check_cxx_compiler_flag(-falign-loops=32 TILEWISE_ALIGNS_LOOPS)
if(TILEWISE_ALIGNS_LOOPS)
  target_compile_options(tilewise_kernel_settings INTERFACE -falign-loops=32)
endif()
# Where f64 is computed, constants that are exact in float, such as 1, are promoted everywhere.
target_compile_options(tilewise_kernel_settings INTERFACE
                       $<$<NOT:$<STREQUAL:$<TARGET_PROPERTY:TILEWISE_COMPUTES_WITH>,f64>>:${exact_warning_options}>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A guess, and wrong about fixed arrays that are filled in part.
  target_compile_options(tilewise_kernel_settings INTERFACE -Wno-maybe-uninitialized)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC's own AVX-512 header sets registers off by using them uninitialised (GCC bug 105593).
    target_compile_options(tilewise_kernel_settings INTERFACE -Wno-uninitialized)
  endif()
endif()
