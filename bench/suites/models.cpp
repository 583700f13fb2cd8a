// models/NAME/WORK/T:LENGTH/threads:N: the shapes of real models, one layer.

#include <array>

#include "suites.hpp"

namespace tilewise::suites {
namespace {

struct model {
    const char* name;
    std::int64_t heads;
    std::int64_t kv_heads;
    std::int64_t head_dim;
    std::int64_t value_dim;
    masking mask;
    element_type type;
    std::int64_t prompt;   ///< tokens of a prefill; 0: none
    std::int64_t context;  ///< keys of one decoded token; 0: none
    bool values_in_keys;
};

// The MLA of DeepSeek-V2-Lite: as it is trained, and with its projections folded into the queries, where all
// heads share one latent vector per token, whose first 512 numbers are the values as well.
constexpr std::array models = {
    model{"Llama-3-8B", 32, 8, 128, 128, masking::causal, element_type::f16, 2048, 8192, false},
    model{"Qwen3-0.6B", 16, 8, 128, 128, masking::causal, element_type::bf16, 2048, 8192, false},
    model{"Qwen3-30B-A3B", 32, 4, 128, 128, masking::causal, element_type::bf16, 2048, 8192, false},
    model{"SmolLM2-135M", 9, 3, 64, 64, masking::causal, element_type::f32, 2048, 2048, false},
    model{"SmolLM2-1.7B", 32, 32, 64, 64, masking::causal, element_type::f32, 1024, 2048, false},
    model{"Gemma-2-9B", 16, 8, 256, 256, masking::soft_cap, element_type::bf16, 1024, 4096, false},
    model{"ViT-L-16-224", 16, 16, 64, 64, masking::no_mask, element_type::f32, 197, 0, false},
    model{"ViT-L-16-384", 16, 16, 64, 64, masking::no_mask, element_type::f32, 577, 0, false},
    model{"Whisper-large-encoder", 20, 20, 64, 64, masking::no_mask, element_type::f32, 1500, 0, false},
    model{"Whisper-large-cross", 20, 20, 64, 64, masking::no_mask, element_type::f32, 0, 1500, false},
    model{"DeepSeek-V2-Lite-MLA", 16, 16, 192, 128, masking::causal, element_type::bf16, 2048, 0, false},
    model{"DeepSeek-V2-Lite-latent", 16, 1, 576, 512, masking::causal, element_type::bf16, 0, 8192, true}};

shape shape_of(const model& m, std::int64_t queries, std::int64_t keys, int threads) {
    shape s;
    s.isa = fastest();
    s.heads = m.heads;
    s.kv_heads = m.kv_heads;
    s.queries = queries;
    s.keys = keys;
    s.head_dim = m.head_dim;
    s.value_dim = m.value_dim;
    s.q_type = s.kv_type = m.type;
    s.mask = m.mask;
    s.threads = threads;
    s.values_in_keys = m.values_in_keys;
    return s;
}

}  // namespace

void add_models(row_list& to) {
    for (const model& m : models) {
        const std::string name = std::string("models/") + m.name;
        for (const int threads : {1, 2}) {
            if (m.prompt > 0) {
                const shape s = shape_of(m, m.prompt, m.prompt, threads);
                to.add(name + "/prefill/T:" + length_name(m.prompt) + "/" + threads_name(s), s, threads == 2);
            }
            if (m.context > 0) {
                const shape s = shape_of(m, 1, m.context, threads);
                to.add(name + "/decode/T:" + length_name(m.context) + "/" + threads_name(s), s, threads == 1);
            }
        }
    }
}

}  // namespace tilewise::suites
