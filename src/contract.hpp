// The arithmetic contract: the one order of operations that every path follows, and its constants.
//
// The scalar reference and the kernels share it and the descriptions in kernels/interface.hpp, and no code.
// All arithmetic is IEEE binary32, round to nearest even, subnormals kept, no contraction but where `fma` is
// written. What is stored as f16 or bf16 is converted to binary32 first, exactly; a quantised number is
// converted exactly and multiplied by its scale in binary32. Where q, k, v and out are f64, it is all
// binary64, with constants of its own (in parentheses below), and else the same.
//
// For one query row q and the keys k_j and values v_j, j = 0 .. n - 1:
//
//   1. s_j = fma(k_j[i], q[i], s_j) for i ascending, from +0.
//   2. t_j = s_j and c = f32(double(scale) * log2 e), if that c is positive and finite, and if there is no
//      soft cap, bias, ALiBi or score function; else c = f32(log2 e) and, one rounding each and in this
//      order:
//        t_j = s_j * scale; or, with a soft cap, soft_cap * tanh(s_j * f32(scale / soft_cap))
//        t_j = t_j + bias_j
//        t_j = fma(slope, -|d|, t_j), d = f32(p - j0) - f32(j - j0): ALiBi, where p is the query's position
//              among the keys, and j0 the first position of the key's chunk
//        t_j = what the score function makes of it
//        t_j = -inf where the key is masked; a bias of -inf masks it, too, and so does a score function that
//              leaves -inf
//   3. Keys are cut into chunks of 128 at positions 0, 128, 256, ... (whatever position the first one has).
//   Of each chunk, over its visible keys:
//        m_c = ceil(max_j(t_j) * c): an integer (-inf if there is no key, or none above -inf)
//        r   = fma(t_j, c, 1.5 * 2^23) - 1.5 * 2^23: t_j * c rounded to an integer (1.5 * 2^52)
//        f   = fma(t_j, c, -r)
//        (where |m_c| >= 2^21 (2^50): r = rint(t_j * c), and f is kept within [-1, 1])
//        p_j = 2^f by Horner's rule with fma, times 2^(r - m_c); +0 where r - m_c < -125 (-1021)
//        l_c = l_c + p_j, o_c[x] = fma(v_j[x], p_j, o_c[x]), for j ascending, from +0
//      In these, an m_c of -inf counts as 0.
//   4. The chunks are folded in order, from m = -inf, l = +0, o = +0 (with a sink t: from m = ceil(t * log2
//   e)
//      and l = the weight of t as in step 3, with c = f32(log2 e)):
//        m' = max(m, m_c), a = 2^(m - m'), b = 2^(m_c - m'); +0 where the exponent is below -126 (-1022)
//        l = fma(l, a, l_c * b), o[x] = fma(o[x], a, o_c[x] * b), m = m'
//   5. out[x] = o[x] / l + 0, or +0 if l = 0; lse = (m + log2 l) * f32(ln 2), or -inf if l = 0.
//      A NaN is written as 0x7fc00000 (0x7ff8000000000000). An f16 or bf16 out is that f32 rounded once, to
//      nearest even; what rounds to a zero is +0, and a NaN is 0x7e00 or 0x7fc0.
//   6. Other results. The row maximum: max_j(t_j) in natural units (times scale, rounded, if it is not in
//   t_j),
//      + 0. Weights: w_j = p_j * 2^(m_c - m) / l + 0 with the final m and l; +0 if l = 0, and for masked
//      keys. Entropy: e_c = fma(w_j, log2 w_j, e_c) for j ascending and w_j at least 2^-126 (2^-1022), e = e
//      + e_c for the chunks in order, entropy = e * -f32(ln 2) + 0. Sums of weights per key: over the queries
//      i = 0 .. 127, 128 .. 255, ... in order from +0, then over these blocks in order.
//
//   7. arithmetic::fastest, where a call gets it, differs in this:
//        Products are made and added in pairs, s' = s + (a1 b1, a2 b2), as the CPU's instruction does it:
//          VDPBF16PS: s' = fma(a1, b1, fma(a2, b2, s)), with each result rounded to nearest even
//          BFDOT:     s' = s + (a1 b1 + a2 b2), with each product and sum rounded to odd
//        In both, subnormal numbers, those between the two operations included, count as zeros of their sign,
//        and no mode of the CPU has a say in it (with FPCR.EBF = 0 on Arm, which is set while a call runs).
//        Scores: pairs of elements 2 i and 2 i + 1, i ascending; beyond an odd head_dim is 0.
//        Weights: exp2_short_coefficients in place of exp2_coefficients; p_j is then rounded to bf16, to
//        nearest even. (A sink's first l is not.)
//        l_c and o_c: pairs of keys at positions 2 j and 2 j + 1, j ascending; l_c has 1 in place of values.
//        A key that is masked, or not there, has weight and value 0.
//        The rest, from m to folding and dividing, is the same f32; l is the sum of the weights that are
//        used.
//
// Why it is so. m is an integer, so 2^(m - m') is a power of two and rescaling rounds nothing: an online
// softmax loses nothing against one that knows the row's maximum from the start, and gives the same bits
// as long as nothing underflows. m_c depends on its own chunk only, so that chunks may be computed in any
// order, on any thread, and even what underflows does so everywhere alike. r is taken from a fused
// multiply-add and a subtraction because that is the cheapest rounding on every instruction set; it is an
// integer for |t_j * c| < 2^22, and what is not lies far below m_c and is +0. Beyond |m_c| >= 2^21, f32
// hardly resolves the scores any more; keeping f small there makes such a row a choice between keys
// instead of garbage. Adding 0 to a result turns -0 into +0: the sign of an underflowed zero is the one
// thing in which skipping a masked key and adding its +0 could differ. The maximum ignores NaN; a visible
// NaN makes its row NaN through p_j.

#ifndef TILEWISE_SRC_CONTRACT_HPP
#define TILEWISE_SRC_CONTRACT_HPP

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace tilewise::contract {

inline constexpr int chunk_keys = 128;

inline constexpr double log2_e_double = 0x1.71547652b82fep+0;

struct common {
    static constexpr int chunk_keys = contract::chunk_keys;
};

/// The constants of binary32.
struct binary32 : common {
    /// Added to and subtracted from |x| < 2^22, it leaves x rounded to the nearest integer.
    static constexpr float rounding_shift = 0x1.8p23F;

    /// From this |m_c| on, scores are rounded the careful way.
    static constexpr float careful_maximum = 0x1p21F;

    /// Weights below 2^weight_min_exponent of their chunk's 2^m_c are +0, so that none is subnormal.
    static constexpr float weight_min_exponent = -125.0F;

    /// Scale factors below 2^fold_min_exponent are +0.
    static constexpr float fold_min_exponent = -126.0F;

    /// Weights below this add nothing to the entropy.
    static constexpr float smallest_normal = 0x1p-126F;

    /// 2^f = 1 + f (e[0] + f (e[1] + ...)): minimax on [-1/2, 1/2], relative error below 2^-28 before
    /// rounding, at most 1 ulp after; exactly 1 at 0.
    static constexpr float exp2_coefficients[6] = {0x1.62e430p-1F, 0x1.ebfbdcp-3F,  0x1.c6aee8p-5F,
                                                   0x1.3b2d4cp-7F, 0x1.5f3e52p-10F, 0x1.41fbbcp-13F};

    /// The same, relative error below 2^-18: for weights that are rounded to bf16.
    static constexpr float exp2_short_coefficients[4] = {0x1.62dfcap-1F, 0x1.ebf1b4p-3F, 0x1.ca9008p-5F,
                                                         0x1.409104p-7F};

    /// log2(1 + u) = u (g[0] + u (g[1] + ...)): minimax for 1 + u in [sqrt(1/2), sqrt(2)), by Horner's rule
    /// with fma; exactly 0 at 0.
    static constexpr float log2_coefficients[10] = {
        0x1.715476p+0F,  -0x1.715470p-1F, 0x1.ec7096p-2F,  -0x1.715a76p-2F, 0x1.277e36p-2F,
        -0x1.eabc88p-3F, 0x1.a305a6p-3F,  -0x1.874be8p-3F, 0x1.7d494ap-3F,  -0x1.c25a72p-4F};

    /// The bits of f32(sqrt(1/2)): log2 splits l into 2^e * x with x in [sqrt(1/2), sqrt(2)).
    static constexpr std::int32_t sqrt_half_bits = 0x3f3504f3;

    /// tanh x = x + x^3 (h[0] + x^2 (h[1] + ...)) for |x| < tanh_small: minimax, relative error below 2^-27.
    /// Beyond, it is 1 - 2 / (e^(2 |x|) + 1) with the sign of x; and 1 from tanh_large on.
    static constexpr float tanh_coefficients[5] = {-0x1.555532p-2F, 0x1.110726p-3F, -0x1.b83c5ap-5F,
                                                   0x1.52269cp-6F, -0x1.75e1ccp-8F};
    static constexpr float tanh_small = 0.625F;
    static constexpr float tanh_large = 9.02F;
    /// 2 log2 e in two parts.
    static constexpr float two_log2_e = 0x1.715476p+1F;
    static constexpr float two_log2_e_rest = 0x1.4ae0c0p-25F;

    static constexpr float ln_2 = 0x1.62e430p-1F;
    static constexpr float log2_e = 0x1.715476p+0F;

    static constexpr std::int32_t canonical_nan_bits = 0x7fc00000;
    static constexpr int fraction_bits = 23;
};

/// Those of binary64.
struct binary64 : common {
    static constexpr double rounding_shift = 0x1.8p52;
    static constexpr double careful_maximum = 0x1p50;
    static constexpr double weight_min_exponent = -1021.0;
    static constexpr double fold_min_exponent = -1022.0;
    static constexpr double smallest_normal = 0x1p-1022;

    /// Minimax, relative error below 2^-64 before the coefficients are rounded, and 2^-55 after; of results,
    /// 0.89 ulp at most in 2 * 10^7 random points.
    static constexpr double exp2_coefficients[12] = {
        0x1.62e42fefa39efp-1,  0x1.ebfbdff82c58fp-3,  0x1.c6b08d704a0cfp-5,  0x1.3b2ab6fba4e22p-7,
        0x1.5d87fe78a26c9p-10, 0x1.430912f883cefp-13, 0x1.ffcbfc74d610cp-17, 0x1.62c021e271441p-20,
        0x1.b524dd553da7fp-24, 0x1.e4d06c676cea9p-28, 0x1.ea014f024a485p-32, 0x1.c2ceadb5f3cc7p-36};

    /// Minimax, relative error below 2^-62 before the coefficients are rounded.
    static constexpr double log2_coefficients[23] = {
        0x1.71547652b82fep+0, -0x1.71547652b82fep-1, 0x1.ec709dc3a0405p-2, -0x1.71547652b83d2p-2,
        0x1.2776c50ef92bep-2, -0x1.ec709dc38901dp-3, 0x1.a61762a83ac73p-3, -0x1.7154765c3b714p-3,
        0x1.484b13b924c4cp-3, -0x1.2776c2e5d3e34p-3, 0x1.0c9a8787d44f1p-3, -0x1.ec7134d01be59p-4,
        0x1.c68f5319d58b1p-4, -0x1.a60aa43cb23adp-4, 0x1.89e6bb9520858p-4, -0x1.71fb44a883fcfp-4,
        0x1.5cdf7fa7e67c4p-4, -0x1.43a08a3909887p-4, 0x1.2895e178a9ae9p-4, -0x1.32be6f53b3fbfp-4,
        0x1.6714712ea1c24p-4, -0x1.40de80f52239fp-4, 0x1.09f3dfe398841p-5};

    static constexpr std::int64_t sqrt_half_bits = 0x3fe6a09e667f3bcd;

    /// Minimax, relative error below 2^-61 before the coefficients are rounded.
    static constexpr double tanh_coefficients[12] = {
        -0x1.5555555555552p-2,  0x1.1111111110c03p-3,  -0x1.ba1ba1b9ce65bp-5,  0x1.664f487037484p-6,
        -0x1.226e32c12d926p-7,  0x1.d6d3584dd7d2fp-9,  -0x1.7d9c1d558b815p-10, 0x1.350ae16d9b5b3p-11,
        -0x1.f10cb275eaa0fp-13, 0x1.800612f0eeca9p-14, -0x1.fa7509ce66b18p-16, 0x1.9580aa0882955p-18};
    static constexpr double tanh_small = 0.625;
    static constexpr double tanh_large = 19.07;
    static constexpr double two_log2_e = 0x1.71547652b82fep+1;
    static constexpr double two_log2_e_rest = 0x1.777d0ffda0d24p-55;

    static constexpr double ln_2 = 0x1.62e42fefa39efp-1;
    static constexpr double log2_e = log2_e_double;

    static constexpr std::int64_t canonical_nan_bits = 0x7ff8000000000000;
    static constexpr int fraction_bits = 52;
};

template <class Real>
using constants = std::conditional_t<std::is_same_v<Real, double>, binary64, binary32>;

/// How scores are taken to the base-2 exponent (step 2). Numbers of the arithmetic, in binary64.
struct score_scaling {
    bool multiply;  ///< t = s * scale; otherwise t = s
    double scale;
    double exponent;  ///< c
};

template <class Real>
score_scaling scaling_for(Real scale, bool modified) {
    const auto given = static_cast<double>(scale);
    const auto c = static_cast<Real>(given * log2_e_double);
    if (!modified && c > 0 && std::isfinite(c)) { return {false, given, static_cast<double>(c)}; }
    return {true, given, static_cast<double>(constants<Real>::log2_e)};
}

}  // namespace tilewise::contract

#endif
