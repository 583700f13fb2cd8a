// decode/ISA/TYPE/LAYOUT/batch:B/heads:H/T:CONTEXT/threads:N: one query token and 8 key heads of 128, as in
// generating text; its limit is the speed at which keys and values can be read.
// rows/ISA/TYPE/d:D/rows:N: a few query rows over 4096 keys, to see where the kernels change.

#include <tilewise/isa.hpp>

#include "suites.hpp"

namespace tilewise::suites {
namespace {

shape one_token(isa which, std::int64_t batch, std::int64_t heads, std::int64_t context) {
    shape s;
    s.isa = which;
    s.batch = batch;
    s.heads = heads;
    s.kv_heads = 8;
    s.queries = 1;
    s.keys = context;
    s.head_dim = s.value_dim = 128;
    return s;
}

std::string row_name(const shape& s) {
    return "decode/" + isa_prefix(s.isa) + type_name(s) + "/" + name_of(s.rows) +
           "/batch:" + std::to_string(s.batch) + "/heads:" + std::to_string(s.heads) +
           "/T:" + length_name(s.keys) + "/" + threads_name(s);
}

bool is_usual(const shape& s) {
    const bool plain = s.kv_type == element_type::f32;
    const bool dense = s.rows == layout::bhsd;
    if (s.arithmetic == arithmetic::fastest) {
        return s.isa == fastest() && dense && s.batch == 1 && s.threads == 1 && s.keys == 32768;
    }
    if (s.isa != fastest() || s.batch == 8) {
        return plain && dense && s.threads == 1 && s.heads == 32 && s.keys == 4096;
    }
    if (s.heads == 64) { return false; }
    if (s.threads == 2) { return dense && s.heads == 32 && s.keys == 32768; }
    if (!dense) { return s.heads == 32 && s.keys == 8192; }
    return s.keys == 32768 || (plain && s.keys != 131072) || (s.heads == 32 && s.keys == 512);
}

void add_variants(row_list& to, shape s) {
    for (const int threads : {1, 2}) {
        s.threads = threads;
        for (const layout rows : {layout::bhsd, layout::bshd}) {
            s.rows = rows;
            to.add(row_name(s), s, is_usual(s));
        }
    }
}

}  // namespace

void add_decode(row_list& to) {
    for (const isa which : available_isas()) {
        for (const std::int64_t batch : {1, 8}) {
            for (const std::int64_t heads : {8, 32, 64}) {
                for (const std::int64_t context : {128, 512, 2048, 4096, 8192, 32768, 131072}) {
                    for (const shape& s : in_all_types(one_token(which, batch, heads, context))) {
                        add_variants(to, s);
                    }
                }
            }
        }
    }
}

void add_rows(row_list& to) {
    for (const isa which : available_isas()) {
        for (const std::int64_t dim : {64, 128, 256}) {
            for (const element_type type : key_types()) {
                for (const std::int64_t rows :
                     {1, 2, 3, 4, 5, 6, 8, 12, 13, 16, 17, 32, 33, 47, 48, 49, 63, 64, 65, 96, 97, 128}) {
                    shape s = one_token(which, 1, 1, 4096);
                    s.kv_heads = 1;
                    s.queries = rows;
                    s.head_dim = s.value_dim = dim;
                    s.kv_type = type;
                    s.q_type = query_type_for(type);
                    const bool usual = which == fastest() && dim == 128 && type == element_type::f32;
                    to.add("rows/" + isa_prefix(which) + name_of(type) + "/d:" + std::to_string(dim) +
                               "/rows:" + std::to_string(rows),
                           s, usual);
                }
            }
        }
    }
}

}  // namespace tilewise::suites
