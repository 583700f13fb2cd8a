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
        case masking::all_true_bits:
            return "all_true_bits";
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

std::string heads_name(const shape& s) {
    if (s.heads == s.kv_heads) { return "MHA"; }
    return (s.kv_heads == 1 ? "MQA:" : "GQA:") + std::to_string(s.heads / s.kv_heads);
}

std::string type_name(const shape& s) {
    return name_of(s.kv_type) + std::string(s.arithmetic == arithmetic::fastest ? ":fastest" : "");
}

std::string threads_name(const shape& s) { return "threads:" + std::to_string(s.threads); }

}  // namespace tilewise::suites
