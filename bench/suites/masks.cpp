// masks/ISA/d:D/T:LENGTH/MASK and layouts/ISA/d:D/T:4k/MASK/LAYOUT: one head, one thread.

#include <tilewise/isa.hpp>

#include "suites.hpp"

namespace tilewise::suites {
namespace {

shape one_head(isa which, std::int64_t tokens, std::int64_t dim) {
    shape s;
    s.isa = which;
    s.queries = s.keys = tokens;
    s.head_dim = s.value_dim = dim;
    return s;
}

std::string row_name(const char* suite, const shape& s) {
    return std::string(suite) + "/" + isa_prefix(s.isa) + "d:" + std::to_string(s.head_dim) +
           "/T:" + length_name(s.keys) + "/" + name_of(s.mask);
}

}  // namespace

void add_masks(row_list& to) {
    for (const isa which : available_isas()) {
        for (const std::int64_t dim : {64, 128}) {
            for (const std::int64_t tokens : {1024, 4096, 8192, 32768}) {
                shape s = one_head(which, tokens, dim);
                for (const masking mask : {masking::no_mask, masking::causal, masking::window_1024,
                                           masking::documents, masking::chunks_1024, masking::all_true_mask,
                                           masking::all_true_bits, masking::block_mask, masking::bias,
                                           masking::soft_cap, masking::alibi, masking::sinks}) {
                    const bool tensor = mask == masking::all_true_mask || mask == masking::all_true_bits ||
                                        mask == masking::bias;
                    if (tensor && tokens > 8192) { continue; }
                    s.mask = mask;
                    to.add(row_name("masks", s), s, which == fastest() && tokens == 4096);
                }
            }
        }
    }
}

void add_layouts(row_list& to) {
    for (const isa which : available_isas()) {
        for (const std::int64_t dim : {64, 128}) {
            for (const element_type type : {element_type::f32, element_type::f16, element_type::bf16}) {
                shape s = one_head(which, 4096, dim);
                s.kv_type = s.q_type = type;
                for (const masking mask : {masking::no_mask, masking::causal}) {
                    s.mask = mask;
                    for (const layout rows : {layout::bhsd, layout::bshd_32_heads, layout::packed_qkv,
                                              layout::sliced_4kib_rows}) {
                        s.rows = rows;
                        to.add(row_name("layouts", s) + "/" + name_of(type) + "/" + name_of(rows), s,
                               which == fastest() && mask == masking::no_mask && type == element_type::f32);
                    }
                }
            }
        }
    }
}

}  // namespace tilewise::suites
