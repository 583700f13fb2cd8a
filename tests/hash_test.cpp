// One answer: the bits of a fixed set of cases have one hash, on every instruction set, compiler and system.

#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include "cases.hpp"

using namespace tilewise_tests;

namespace {

// It changes when the arithmetic does, and never otherwise.
constexpr std::uint64_t hash_of_all_results = 0xac476e4788c72cd6U;
#ifdef TILEWISE_TESTS_HAVE_F64
constexpr std::uint64_t hash_of_all_results_in_f64 = 0x8b06d89e1f88a21fU;
#endif

/// FNV-1a, 64 bits wide, over the bytes of each number from the lowest on.
class fnv_hash {
public:
    void add(const tilewise::const_tensor& tensor) {
        for (std::int64_t b = 0; b < tensor.batch(); ++b) {
            for (std::int64_t h = 0; h < tensor.heads(); ++h) {
                for (std::int64_t t = 0; t < tensor.tokens(); ++t) {
                    for (std::int64_t i = 0; i < tensor.head_dim(); ++i) {
                        if (tensor.type == tilewise::element_type::f64) {
                            add_bytes(bits_of(f64_at(tensor, b, h, t, i)));
                        } else {
                            add_bytes(bits_of(*element(tensor, b, h, t, i)));
                        }
                    }
                }
            }
        }
    }
    [[nodiscard]] std::uint64_t value() const { return value_; }

private:
    template <class Bits>
    void add_bytes(Bits bits) {
        for (unsigned byte = 0; byte < sizeof bits; ++byte) {
            value_ = (value_ ^ ((bits >> (8U * byte)) & 0xffU)) * 0x100000001b3U;
        }
    }
    std::uint64_t value_ = 0xcbf29ce484222325U;
};

std::string hexadecimal(std::uint64_t value) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(value));
    return text;
}

template <class Compute>
std::uint64_t hash_results(const Compute& compute, tilewise::element_type type) {
    fnv_hash hash;
    std::uint64_t seed = 0;
    for (const auto causal : all_causal) {
        for (const std::int64_t keys : {1, 100, 129, 300}) {
            for (const std::int64_t dim : {3, 16, 64}) {
                for (const float score_size : {1.0F, 20.0F, 3000.0F}) {
                    attention_case which{.heads = 4,
                                         .kv_heads = 2,
                                         .queries = 30,
                                         .keys = keys,
                                         .key_dim = dim,
                                         .value_dim = dim + 1,
                                         .causal = causal,
                                         .seed = ++seed};
                    which.types.fill(type);
                    if (seed % 5 == 0) { which.scale = -0.3F; }
                    const inputs given = make_inputs(which);
                    given.q.fill_normal(seed, score_size);
                    const results got = compute(which, given);
                    hash.add(got.out.view());
                    hash.add(got.lse.view());
                }
            }
        }
    }
    return hash.value();
}

void check_hash(tilewise::element_type type, std::uint64_t want) {
    const auto compute = [](const attention_case& which, const inputs& given) {
        return tiled(which, given, {.threads = 2});
    };
    CHECK(hexadecimal(hash_results(compute, type)) == hexadecimal(want));
    CHECK(hexadecimal(hash_results(naive, type)) == hexadecimal(want));
}

}  // namespace

TEST_CASE("hash: the results have the bits that they have everywhere") {
    check_hash(tilewise::element_type::f32, hash_of_all_results);
}

#ifdef TILEWISE_TESTS_HAVE_F64
TEST_CASE("hash: and so have those in f64") {
    check_hash(tilewise::element_type::f64, hash_of_all_results_in_f64);
}
#endif
