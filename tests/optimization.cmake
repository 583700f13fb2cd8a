# The hash of the results once more for each instruction set, from code that is compiled with other optimization: the
# promise does not depend on it. A program has one instruction set: without optimization, functions of xsimd are not
# inlined, and the linker would merge them between instruction sets.

set(TILEWISE_OPTIMIZATION_TESTS "" CACHE STRING "Levels of optimization to test the results of besides, e.g. 0;2")
if(TILEWISE_OPTIMIZATION_TESTS STREQUAL "")
  return()
endif()

set(src ${PROJECT_SOURCE_DIR}/src)
set(decisions arguments attention errors option_checks plan reference reference_math reference_scores result_checks threads views)
list(TRANSFORM decisions REPLACE "(.+)" "${src}/\\1.cpp")

add_library(tilewise_hash_test OBJECT cases.cpp hash_test.cpp isa_probe.cpp main.cpp support.cpp tensors.cpp thread_pool.cpp)
target_link_libraries(tilewise_hash_test PRIVATE tilewise_settings doctest::doctest)
target_include_directories(tilewise_hash_test PRIVATE ${PROJECT_SOURCE_DIR}/include)
if(TILEWISE_F64)
  target_compile_definitions(tilewise_hash_test PRIVATE TILEWISE_TESTS_HAVE_F64=1)
endif()

# tilewise_add_optimization(<level>): -O<level>.
function(tilewise_add_optimization level)
  add_library(tilewise_O${level} OBJECT ${decisions})
  target_link_libraries(tilewise_O${level} PRIVATE tilewise_settings)
  target_include_directories(tilewise_O${level} PRIVATE ${PROJECT_SOURCE_DIR}/include ${src})
  target_compile_options(tilewise_O${level} PRIVATE -O${level})
  foreach(isa IN LISTS TILEWISE_ISAS)
    set(name hash_O${level}_${isa})
    add_executable(${name} ${src}/isa.cpp $<TARGET_OBJECTS:tilewise_hash_test> $<TARGET_OBJECTS:tilewise_O${level}>)
    tilewise_list_tables(tables ${isa} "f32;f64")
    target_compile_definitions(${name} PRIVATE "TILEWISE_TABLES=${tables}")
    foreach(numbers f32 f64)
      if("${isa}" IN_LIST TILEWISE_ISAS_${numbers})
        tilewise_add_objects(${name} ${isa} ${numbers} ${src}/kernels/forward.cpp)
        tilewise_name_kernels(kernels ${isa} ${numbers})
        set_target_properties(${name}_${kernels} PROPERTIES TILEWISE_OPTIMIZATION -O${level})
      endif()
    endforeach()
    target_compile_options(${name} PRIVATE -O${level})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include ${src})
    target_link_libraries(${name} PRIVATE tilewise_settings Threads::Threads)
    add_test(NAME ${name} COMMAND ${name} "--test-case=hash:*")
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "TILEWISE_ISA=${isa};TILEWISE_TEST_EXPECT_ISA=${isa}"
                                            SKIP_RETURN_CODE 77 TIMEOUT 600)
  endforeach()
endfunction()

foreach(level IN LISTS TILEWISE_OPTIMIZATION_TESTS)
  tilewise_add_optimization(${level})
endforeach()
