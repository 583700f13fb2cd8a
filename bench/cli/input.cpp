#include "input.hpp"

#include <array>
#include <random>

#include "errors.hpp"
#include "npy.hpp"

namespace tilewise::cli {
namespace {

std::filesystem::path file_of(const input_spec& spec, char tensor_name) {
    return spec.data / (spec.layer + "_" + tensor_name + ".npy");
}

input read_real(const input_spec& spec) {
    const array q = read_npy("--data", file_of(spec, 'q'));
    const array k = read_npy("--data", file_of(spec, 'k'));
    const array v = read_npy("--data", file_of(spec, 'v'));
    input result{spec, q.to_f32(), k.to_f32(), v.to_f32()};
    const const_tensor queries = q.view();
    const bool fit = !q.fortran_order && !k.fortran_order && !v.fortran_order && queries.batch() == 1 &&
                     k.shape == v.shape && k.view().tokens() == queries.tokens() &&
                     k.view().head_dim() == queries.head_dim() && k.view().heads() > 0 &&
                     queries.heads() % k.view().heads() == 0;
    if (!fit) {
        throw run_error("--data: the q, k and v of layer '" + spec.layer + "' in '" + spec.data.string() +
                        "' do not fit each other");
    }
    result.spec.tokens = queries.tokens();
    result.spec.heads = queries.heads();
    result.spec.kv_heads = k.view().heads();
    result.spec.head_dim = queries.head_dim();
    return result;
}

std::size_t elements(std::int64_t heads, const input_spec& spec) {
    return static_cast<std::size_t>(heads * spec.tokens * spec.head_dim);
}

}  // namespace

double input_spec::bytes() const {
    return 4.0 * static_cast<double>(2 * (heads + kv_heads)) * static_cast<double>(tokens) *
           static_cast<double>(head_dim);
}

const_tensor input::q_view() const { return bhsd(q.data(), 1, spec.heads, spec.tokens, spec.head_dim); }
const_tensor input::k_view() const { return bhsd(k.data(), 1, spec.kv_heads, spec.tokens, spec.head_dim); }
const_tensor input::v_view() const { return bhsd(v.data(), 1, spec.kv_heads, spec.tokens, spec.head_dim); }
tensor input::out_view(float* out) const { return bhsd(out, 1, spec.heads, spec.tokens, spec.head_dim); }

bool has_real_input(const input_spec& spec) {
    std::error_code ignored;
    for (const char name : {'q', 'k', 'v'}) {
        if (!std::filesystem::is_regular_file(file_of(spec, name), ignored)) { return false; }
    }
    return true;
}

input make_input(const input_spec& spec) {
    if (spec.is_real()) { return read_real(spec); }
    const std::size_t keys = elements(spec.kv_heads, spec);
    return {spec, random_values(elements(spec.heads, spec), 1), random_values(keys, 2),
            random_values(keys, 3)};
}

std::vector<float> random_values(std::size_t count, std::uint64_t stream) {
    std::mt19937_64 generator(stream);
    std::vector<float> values(count);
    for (float& value : values) {
        // The sum of four independent numbers from 0 to 65535 has variance (2^32 - 1) / 3.
        const std::uint64_t bits = generator();
        const auto sum = static_cast<std::int32_t>((bits & 65535) + (bits >> 16 & 65535) +
                                                   (bits >> 32 & 65535) + (bits >> 48));
        value = static_cast<float>(sum - 2 * 65535) * 0x1.bb67aep-16F;
    }
    return values;
}

}  // namespace tilewise::cli
