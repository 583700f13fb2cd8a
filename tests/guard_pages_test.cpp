// No byte outside the tensors is read or written: each of them ends, or begins, at a protected page.

#include <doctest/doctest.h>

#if defined(__unix__) || defined(__APPLE__)

#    include <algorithm>
#    include <array>
#    include <iterator>
#    include <tilewise/reference.hpp>
#    include <vector>

#    include "all_results.hpp"
#    include "cases.hpp"
#    include "guarded_memory.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;
enum class order : std::uint8_t { bhsd, bshd, transposed, reversed };

/// A tensor of exactly its elements in guarded memory.
class guarded_tensor {
public:
    guarded_tensor(const tilewise::tensor& like, order how, guard where)
        : memory_(bytes_of(like), where),
          view_(memory_.data(), like.type, like.extents, strides_of(like.extents, how)) {
        if (how == order::reversed) {
            view_.data = memory_.data() + bytes_of(like) - tilewise::block_of(like.type).bytes;
        }
    }

    [[nodiscard]] const tilewise::tensor& view() const { return view_; }

    void copy_from(const owned_tensor& from) const {
        for (count b = 0; b < view_.batch(); ++b) {
            for (count h = 0; h < view_.heads(); ++h) {
                for (count t = 0; t < view_.tokens(); ++t) {
                    for (count i = 0; i < view_.head_dim(); ++i) {
                        set_bits(view_, b, h, t, i, bits_at(from.view(), b, h, t, i));
                    }
                }
            }
        }
    }

private:
    static std::size_t bytes_of(const tilewise::tensor& like) {
        const auto [batch, heads, tokens, dim] = like.extents;
        return static_cast<std::size_t>(batch * heads * tokens * dim * tilewise::block_of(like.type).bytes);
    }

    static extents strides_of(const extents& sizes, order how) {
        const auto [batch, heads, tokens, dim] = sizes;
        const float* const none = nullptr;
        extents strides = how == order::bshd ? tilewise::bshd(none, batch, tokens, heads, dim).strides
                                             : tilewise::bhsd(none, batch, heads, tokens, dim).strides;
        if (how == order::transposed) {
            strides[2] = 1;
            strides[3] = tokens;
        }
        if (how == order::reversed) {
            for (auto& stride : strides) { stride = -stride; }
        }
        return strides;
    }

    guarded_memory memory_;
    tilewise::tensor view_;
};

/// All results in guarded memory.
struct guarded_results {
    guarded_tensor out, lse, row_maximum, entropy, key_weights, weights;

    guarded_results(const all_results& like, order how, guard where)
        : out(like.out.view(), how, where),
          lse(like.lse.view(), how, where),
          row_maximum(like.row_maximum.view(), how, where),
          entropy(like.entropy.view(), how, where),
          key_weights(like.key_weights.view(), how, where),
          weights(like.weights.view(), how, where) {}

    [[nodiscard]] tilewise::options asked_for(tilewise::options how, const std::vector<count>& rows) const {
        how.lse = lse.view();
        how.extra = {row_maximum.view(), entropy.view(), key_weights.view(), rows, weights.view()};
        return how;
    }
    void check(const all_results& want) const {
        const guarded_tensor* const got[] = {&out, &lse, &row_maximum, &entropy, &key_weights, &weights};
        for (std::size_t n = 0; n < std::size(got); ++n) {
            INFO(want.parts()[n].name);
            CHECK(first_difference(got[n]->view(), want.parts()[n].tensor->view()) == "");
        }
    }
};

void check_guarded(const attention_case& which, order how, guard where) {
    const inputs given = make_inputs(which);
    const all_results want(which, every(5, which.queries));
    tilewise::options options{.scale = which.scale, .causal = which.causal};
    tilewise::reference::attention(given.q.view(), given.k.view(), given.v.view(), want.out.view(),
                                   want.asked_for(options));
    const guarded_tensor q(given.q.view(), how, where);
    const guarded_tensor k(given.k.view(), how, where);
    const guarded_tensor v(given.v.view(), how, where);
    q.copy_from(given.q);
    k.copy_from(given.k);
    v.copy_from(given.v);
    const guarded_results got(want, how == order::reversed ? order::bhsd : how, where);
    options = got.asked_for(options, want.rows);
    options.threads = 2;
    INFO(show(which));
    tilewise::attention(q.view(), k.view(), v.view(), got.out.view(), options);
    got.check(want);
    tilewise::reference::attention(q.view(), k.view(), v.view(), got.out.view(), options);
    got.check(want);
}

}  // namespace

TEST_CASE("guard pages: nothing outside the tensors is touched, at ragged sizes") {
    constexpr std::array<count, 12> lengths = {1, 2, 3, 7, 15, 17, 31, 47, 49, 127, 129, 260};
    constexpr std::array<count, 10> dims = {1, 2, 3, 5, 8, 15, 17, 33, 63, 80};
    random_source random(11);
    const count cases = by_effort(60, 200, 300);
    for (count number = 0; number < cases; ++number) {
        const auto any = [&](const auto& of) {
            return of[static_cast<std::size_t>(random.bits() % of.size())];
        };
        attention_case which;
        which.batch = random.between(1, 2);
        which.kv_heads = random.between(1, 2);
        which.heads = which.kv_heads * random.between(1, 3);
        which.queries = any(lengths);
        which.keys = any(lengths);
        which.key_dim = any(dims);
        which.value_dim = random.bits() % 2 == 0 ? which.key_dim : any(dims);
        which.causal = any(all_causal);
        which.seed = static_cast<std::uint64_t>(number) + 1;
        for (auto& type : which.types) { type = any(float_types); }
        const auto how = static_cast<order>(number % 4);
        check_guarded(which, how, number / 4 % 2 == 0 ? guard::behind : guard::before);
    }
}

TEST_CASE("guard pages: padding beyond a key length need not exist") {
    const std::vector<count> rows = {3, 19};
    for (count keys : {0, 1, 100, 129}) {
        // Keys of two heads side by side are copied, those of one are read in place.
        for (const count heads : {1, 2}) {
            const attention_case present{.heads = heads, .kv_heads = heads, .queries = 20, .keys = keys};
            attention_case padded = present;
            padded.keys = 400;
            const inputs given = make_inputs(present);
            const guarded_tensor k(given.k.view(), order::bshd, guard::behind);
            const guarded_tensor v(given.v.view(), order::bshd, guard::behind);
            k.copy_from(given.k);
            v.copy_from(given.v);
            tilewise::tensor k_view = k.view();
            tilewise::tensor v_view = v.view();
            k_view.extents[2] = v_view.extents[2] = padded.keys;
            const all_results got(padded, rows);
            tilewise::attention(given.q.view(), k_view, v_view, got.out.view(),
                                got.asked_for({.key_lengths = {&keys, 1}}));
            const all_results want = attend(present, given, {}, rows);
            CHECK(first_difference(got.out.view(), want.out.view()) == "");
            CHECK(first_difference(got.key_weights.view().slice(tilewise::axis::head_dim, 0, keys),
                                   want.key_weights.view()) == "");
        }
    }
}

TEST_CASE("guard pages: tensors without elements are not touched") {
    for (const guard where : {guard::behind, guard::before}) {
        check_guarded({.queries = 5, .keys = 0, .key_dim = 4, .value_dim = 4}, order::bhsd, where);
        check_guarded({.queries = 0, .keys = 5, .key_dim = 4, .value_dim = 4}, order::bhsd, where);
        check_guarded({.queries = 5, .keys = 5, .key_dim = 0, .value_dim = 4, .scale = 1.0F}, order::bhsd,
                      where);
        check_guarded({.queries = 5, .keys = 5, .key_dim = 4, .value_dim = 0}, order::bhsd, where);
    }
}

#endif
