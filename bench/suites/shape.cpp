#include "shape.hpp"

namespace tilewise::suites {

const char* name_of(layout which) {
    switch (which) {
        case layout::bhsd:
            return "bhsd";
        case layout::bshd:
            return "bshd";
        case layout::bshd_32_heads:
            return "bshd_32_heads";
        case layout::packed_qkv:
            return "packed_qkv";
        default:
            return "sliced_4KiB_rows";
    }
}

const char* name_of(masking which) {
    switch (which) {
        case masking::no_mask:
            return "no_mask";
        case masking::causal:
            return "causal";
        case masking::window_1024:
            return "window_1024";
        case masking::documents:
            return "documents_8";
        case masking::chunks_1024:
            return "chunks_1024";
        case masking::all_true_mask:
            return "all_true_mask";
        case masking::block_mask:
            return "block_mask";
        case masking::bias:
            return "bias";
        case masking::soft_cap:
            return "soft_cap";
        case masking::alibi:
            return "alibi";
        default:
            return "sinks";
    }
}

const char* name_of(element_type which) {
    switch (which) {
        case element_type::f16:
            return "f16";
        case element_type::bf16:
            return "bf16";
        case element_type::q8_0:
            return "q8_0";
        case element_type::q4_0:
            return "q4_0";
        case element_type::i8:
            return "i8";
        case element_type::e4m3:
            return "e4m3";
        case element_type::e5m2:
            return "e5m2";
        default:
            return "f32";
    }
}

double bytes_of(element_type type, double elements) {
    const element_block block = block_of(type);
    return elements * static_cast<double>(block.bytes) / static_cast<double>(block.elements);
}

std::string heads_name(const shape& s) {
    if (s.heads == s.kv_heads) { return "MHA"; }
    return (s.kv_heads == 1 ? "MQA:" : "GQA:") + std::to_string(s.heads / s.kv_heads);
}

std::string threads_name(const shape& s) { return "threads:" + std::to_string(s.threads); }

}  // namespace tilewise::suites
