// What only a caller from C can get wrong.

#ifndef TILEWISE_TESTS_FUZZ_HOSTILE_C_HPP
#define TILEWISE_TESTS_FUZZ_HOSTILE_C_HPP

#include "byte_source.hpp"
#include "hostile.hpp"
#include "hostile_call.hpp"

namespace tilewise_tests {

/// Makes one mistake in the call's description in C, which all functions must refuse, writing nothing.
void check_c(const hostile_call& call, byte_source& bytes, arena& memory);

}  // namespace tilewise_tests

#endif
