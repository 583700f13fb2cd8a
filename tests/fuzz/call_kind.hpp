// What a fuzzed call computes with: the types of its tensors, and the arithmetic that it asks for.

#ifndef TILEWISE_TESTS_FUZZ_CALL_KIND_HPP
#define TILEWISE_TESTS_FUZZ_CALL_KIND_HPP

#include <array>
#include <tilewise/attention.hpp>

#include "byte_source.hpp"

namespace tilewise_tests {

enum class call_kind {
    exact,    ///< any types but f64
    fastest,  ///< the same, and arithmetic::fastest, which is exact for most of them
    pairs,    ///< q, k and v in bf16, and arithmetic::fastest
    f64       ///< all in f64
};

inline call_kind pick_kind(byte_source& bytes) {
    return bytes.pick(std::array{call_kind::exact, call_kind::f64, call_kind::pairs, call_kind::exact,
                                 call_kind::fastest, call_kind::exact, call_kind::f64, call_kind::pairs});
}

inline tilewise::arithmetic arithmetic_of(call_kind kind) {
    return kind == call_kind::fastest || kind == call_kind::pairs ? tilewise::arithmetic::fastest
                                                                  : tilewise::arithmetic::exact;
}

/// The type of a result; `any` is that of a call which may have any.
inline tilewise::element_type result_type(call_kind kind, tilewise::element_type any) {
    return kind == call_kind::f64 ? tilewise::element_type::f64 : any;
}

/// The same for q, k and v.
inline tilewise::element_type input_type(call_kind kind, tilewise::element_type any) {
    return kind == call_kind::pairs ? tilewise::element_type::bf16 : result_type(kind, any);
}

/// Whether elements of a type are multiplied by scales that lie in memory of their own.
inline bool has_scales(tilewise::element_type type) {
    return type == tilewise::element_type::i8 || type == tilewise::element_type::e4m3 ||
           type == tilewise::element_type::e5m2;
}

}  // namespace tilewise_tests

#endif
