// Elements of any storage type, one at a time: converted as they are read, rounded as they are written. For
// the oracle, and for what is copied outside of the kernels, which have their own.

#ifndef TILEWISE_SRC_REFERENCE_ELEMENTS_HPP
#define TILEWISE_SRC_REFERENCE_ELEMENTS_HPP

#include <cstdint>

#include <tilewise/tensor.hpp>

namespace tilewise::reference {

/// The number of types with scales in memory of their own. An index may be negative; blocks of 32 begin at
/// multiples of 32 all the same.
inline float read_element(const void* data, element_type type, std::int64_t index) {
    switch (type) {
        case element_type::f16:
            return static_cast<float>(static_cast<const float16*>(data)[index]);
        case element_type::bf16:
            return static_cast<float>(static_cast<const bfloat16*>(data)[index]);
        case element_type::q8_0: {
            const q8_0_block& block = static_cast<const q8_0_block*>(data)[index >> 5];
            return static_cast<float>(block.scale) * static_cast<float>(block.values[index & 31]);
        }
        case element_type::q4_0: {
            const q4_0_block& block = static_cast<const q4_0_block*>(data)[index >> 5];
            const int number = block.values[index & 15] >> ((index & 16) == 0 ? 0 : 4) & 15;
            return static_cast<float>(block.scale) * static_cast<float>(number - 8);
        }
        case element_type::i8:
            return static_cast<float>(static_cast<const std::int8_t*>(data)[index]);
        case element_type::e4m3:
            return static_cast<float>(static_cast<const float8_e4m3*>(data)[index]);
        case element_type::e5m2:
            return static_cast<float>(static_cast<const float8_e5m2*>(data)[index]);
        default:
            return static_cast<const float*>(data)[index];
    }
}

/// The same as what is computed in: f64 has f64 and f32.
template <class Real>
Real read_real(const void* data, element_type type, std::int64_t index) {
    if (type == element_type::f64) { return static_cast<Real>(static_cast<const double*>(data)[index]); }
    return static_cast<Real>(read_element(data, type, index));
}

inline void write_element(void* data, element_type /*f64*/, std::int64_t index, double value) {
    static_cast<double*>(data)[index] = value;
}

/// Zero is written as +0.
inline void write_element(void* data, element_type type, std::int64_t index, float value) {
    if (type == element_type::f16) {
        const float16 half(value);
        static_cast<float16*>(data)[index] = static_cast<float>(half) == 0.0F ? float16(0.0F) : half;
    } else if (type == element_type::bf16) {
        const bfloat16 half(value);
        static_cast<bfloat16*>(data)[index] = static_cast<float>(half) == 0.0F ? bfloat16(0.0F) : half;
    } else {
        static_cast<float*>(data)[index] = value;
    }
}

}  // namespace tilewise::reference

#endif
