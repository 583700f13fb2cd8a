# How the test program runs under tools that watch it: which of its test cases, and with what settings.

set(tests_arguments "")
set(tests_environment "")
option(TILEWISE_MEMCHECK "Run some of the tests under valgrind, too" OFF)

# Calls from many threads, in all ways that there are. ThreadSanitizer brings an operator new, so that allocations are
# not counted. clang's OpenMP loads Archer, which tells it how the threads of a team wait for each other; OpenMP itself
# is not instrumented. Children of fork may start threads.
if("thread" IN_LIST TILEWISE_SANITIZE)
  set(tests_arguments "--test-case=load: *,calls from *,threads of *,the caller's *,score function*,parallel_for: *,exactness: random*")
  set(tests_environment "TSAN_OPTIONS=ignore_noninstrumented_modules=1 die_after_fork=0")
endif()

# tilewise_add_memcheck(<instruction set>): every kind of tile and mask once. valgrind knows no AVX-512. The program's
# own malloc is watched as well.
function(tilewise_add_memcheck isa)
  find_program(TILEWISE_VALGRIND valgrind)
  if(NOT TILEWISE_VALGRIND OR isa STREQUAL "avx512")
    add_test(NAME memcheck_${isa} COMMAND ${CMAKE_COMMAND} -E echo "skipped: no valgrind, or none for ${isa}")
    set_tests_properties(memcheck_${isa} PROPERTIES SKIP_REGULAR_EXPRESSION "skipped:")
    return()
  endif()
  add_test(NAME memcheck_${isa}
           COMMAND ${TILEWISE_VALGRIND} --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite
                   --errors-for-leak-kinds=definite
                   --soname-synonyms=somalloc=NONE $<TARGET_FILE:tilewise_tests>
                   "--test-case=views without*,streams of views*,hash*,exactness: empty*,masks: bytes*,quantized: slices*,results: in any*,pages: packed*,kv_cache: forks*,stream: extents*,stream state: the instruction*"
  )
  set_tests_properties(memcheck_${isa} PROPERTIES ENVIRONMENT "TILEWISE_ISA=${isa};TILEWISE_TEST_EFFORT=quick" TIMEOUT 1800)
endfunction()
