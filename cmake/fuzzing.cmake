# For the fuzzers, all code counts the branches that it takes. Where libFuzzer is missing, tests say so and are skipped.

include(CheckCXXSourceCompiles)

set(CMAKE_REQUIRED_FLAGS -fsanitize=fuzzer)
check_cxx_source_compiles("extern \"C\" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }"
                          TILEWISE_HAVE_LIBFUZZER)
unset(CMAKE_REQUIRED_FLAGS)

if(TILEWISE_HAVE_LIBFUZZER)
  # Comparisons are not traced: the fuzzers' bytes are choices, and mean no numbers that the code compares.
  add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize-coverage=trace-cmp)
  add_link_options(-fsanitize=fuzzer-no-link)
else()
  message(STATUS "The compiler has no libFuzzer (on Debian and Ubuntu: clang with libclang-rt-dev): fuzzers are skipped")
endif()
