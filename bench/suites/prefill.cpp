// prefill/ISA/TYPE/d:D/HEADS/T:LENGTH/MASK/threads:N: as many queries as keys.

#include <tilewise/isa.hpp>

#include "machine.hpp"
#include "suites.hpp"

namespace tilewise::suites {
namespace {

struct grouping {
    std::int64_t heads;
    std::int64_t kv_heads;
};

/// One head is enough to see a kernel's speed; then MHA, GQA 4:1 and MQA.
constexpr grouping groupings[] = {{1, 1}, {4, 4}, {8, 2}, {8, 1}};

shape square(isa which, std::int64_t tokens, std::int64_t dim, const grouping& heads) {
    shape s;
    s.isa = which;
    s.heads = heads.heads;
    s.kv_heads = heads.kv_heads;
    s.queries = s.keys = tokens;
    s.head_dim = s.value_dim = dim;
    return s;
}

std::string row_name(const shape& s) {
    const std::string heads = s.heads == 1 ? "one_head" : heads_name(s);
    return "prefill/" + isa_prefix(s.isa) + type_name(s) + "/d:" + std::to_string(s.head_dim) + "/" + heads +
           "/T:" + length_name(s.keys) + "/" + name_of(s.mask) + "/" + threads_name(s);
}

/// A few rows for each question: lengths, types, groups of heads, threads.
bool is_usual(const shape& s) {
    const bool plain = s.kv_type == element_type::f32 && s.heads == 1;
    if (s.arithmetic == arithmetic::fastest) {
        return s.isa == fastest() && s.heads == 1 && s.keys == 4096 && s.head_dim <= 128 && s.threads == 1;
    }
    if (s.threads == 2) { return plain && s.head_dim == 128 && s.keys == 8192 && s.isa == fastest(); }
    if (s.isa != fastest()) {
        return plain && s.head_dim <= 128 && s.keys == (s.isa == isa::sse2 ? 1024 : 4096) &&
               s.mask == masking::causal;
    }
    if (plain && s.head_dim <= 128) {
        return s.keys == 512 || s.keys == 2048 || s.keys == 4096 || s.keys == 16384;
    }
    if (plain) { return s.keys == 4096; }
    return s.keys == 4096 && s.head_dim == 128 && s.mask == masking::no_mask &&
           (s.heads == 1 || s.kv_type == element_type::f32);
}

void add_variants(row_list& to, shape s) {
    for (const masking mask : {masking::no_mask, masking::causal}) {
        s.mask = mask;
        for (const int threads : {1, 2}) {
            s.threads = threads;
            to.add(row_name(s), s, is_usual(s));
        }
    }
}

}  // namespace

void add_prefill(row_list& to) {
    for (const isa which : available_isas()) {
        for (const std::int64_t dim : {64, 128, 256}) {
            for (const grouping& heads : groupings) {
                for (std::int64_t tokens = 512; tokens <= 128 * 1024; tokens *= 2) {
                    for (const shape& s : in_all_types(square(which, tokens, dim, heads))) {
                        add_variants(to, s);
                    }
                }
            }
        }
    }
}

void add_threads(row_list& to) {
    const int all = measure::default_threads();
    for (const std::int64_t tokens : {1024, 8192}) {
        for (int threads = 1; threads <= all;
             threads = threads < all && 2 * threads > all ? all : 2 * threads) {
            shape s = square(fastest(), tokens, 128, {8, 2});
            s.mask = masking::causal;
            s.threads = threads;
            to.add("threads/" + isa_prefix(s.isa) + "d:128/GQA:4/T:" + length_name(tokens) + "/causal/" +
                       threads_name(s),
                   s, tokens == 1024);
        }
    }
}

}  // namespace tilewise::suites
