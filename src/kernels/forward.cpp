// The forward tile loop. Compiled once per instruction set; src/attention.cpp calls it, through the table
// at the end, for each task: load tile -> scores -> mask -> softmax -> values -> epilogue.
//
// No std containers, no allocation, no exceptions, no threads here.

#include <cstddef>
#include <cstdint>

#include "../contract.hpp"
#include "chunks.hpp"
#include "interface.hpp"
#include "panel.hpp"
#include "panel_scores.hpp"
#include "simd.hpp"
#include "softmax.hpp"
#include "states.hpp"
#include "tiles.hpp"
#include "values.hpp"
#include "weights.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

namespace {

/// One panel against the keys of the chunk that it sees.
template <int Vectors>
void attend(const shape& s, const task& t, const panel& p, chunk& c, const score_memory& memory) {
    const std::int64_t keys = p.seen.last - p.seen.first;
    const hiding by = score_panel<Vectors>(s, t, p, c, memory);
    const bool careful = (by.some() || has_part_of_pair(p.seen)) && !is_finite(s, p, c);
    softmax_tile<Vectors>(memory.scores, keys, static_cast<real>(s.scores.exponent), p.state,
                          {!careful, starts_in_pair(p.seen)});
    const tile v = seen_values(p, c);
    if (careful) {
        fill_hidden(s, t, p, by, memory, masked_weight);
        value_tile_carefully<Vectors>(memory.scores, v.data, v.stride, keys, starts_in_pair(p.seen),
                                      s.value_dim, p.state.keep, p.state.take, p.out);
    } else {
        value_tile<Vectors>(memory.scores, v.data, v.stride, unit_count(p.seen), s.value_dim, p.state.keep,
                            p.state.take, p.out);
    }
}

#if TILEWISE_NARROW_PANELS
/// The same for a narrow panel whose scores are changed or hidden, by way of the form that all panels have.
/// Leaves weights; returns whether V must be met carefully.
bool weigh_as_all_panels(const shape& s, const task& t, const panel& p, chunk& c,
                         const score_memory& memory) {
    const std::int64_t keys = p.seen.last - p.seen.first;
    const hiding by = score_panel<1>(s, t, p, c, memory);
    softmax_tile<1>(memory.scores, keys, static_cast<real>(s.scores.exponent), p.state,
                    {false, starts_in_pair(p.seen)});
    const bool careful = by.some() && !is_finite(s, p, c);
    if (careful) { fill_hidden(s, t, p, by, memory, masked_weight); }
    lanes_to_narrow(memory.scores, keys, p.rows, p.narrow_room.scores);
    return careful;
}

/// And for one whose keys are all visible, with scores that nothing changes; leaves l_c to the sums of V.
/// Returns false, and the state as it was, if the weights need care.
bool weigh_directly(const shape& s, const panel& p, const chunk& c) {
    const std::int64_t keys = p.seen.last - p.seen.first;
    const stored_rows k = seen_rows(c.k_rows, p);
    real* const scores = p.narrow_room.scores;
    narrow_scores(p.q, k, p.rows, scores);
    narrow_maxima(scores, keys, p.rows, p.state.chunk);
    const vec chunk_maximum[1] = {
        ceiling(load(p.state.chunk) * broadcast(static_cast<real>(s.scores.exponent)))};
    const vec lowest = broadcast(-__builtin_inff());
    const vec shift = select(chunk_maximum[0] == lowest, broadcast(0.0F), chunk_maximum[0]);
    if (needs_care(shift)) { return false; }
    alignas(64) real bases[lanes];
    store(bases, shift);
    narrow_weights(scores, keys, p.rows, static_cast<real>(s.scores.exponent), bases);
    fold_maximum<1>(chunk_maximum, p.state);
    return true;
}

void attend_narrow(const shape& s, const task& t, const workspace& w, const panel& p, chunk& c) {
    const bool plain = !has_modifiers(s.scores) && s.scores.function == nullptr &&
                       !partly_visible(p, p.seen) && p.masks == tile_visibility::all;
    const stored_rows v = seen_rows(c.v_rows, p);
    if (!t.pages_looked_up) {
        look_up_next_chunks(seen_rows(c.k_rows, p));
        look_up_next_chunks(v);
    }
    const bool direct = plain && weigh_directly(s, p, c);
    const bool careful = !direct && weigh_as_all_panels(s, t, p, c, w.scores);
    alignas(64) real weight_sums[lanes] = {};
    const value_sums sums{
        p.narrow_room.scores,  v, p.rows, round_up(s.value_dim, max_depth), p.narrow_room.sums, weight_sums,
        starts_in_pair(p.seen)};
    if (careful) {
        if (c.v.data == nullptr) { c.v = load_value_tile(w.v, c.keys.first, c.keys.last - c.keys.first); }
        narrow_values_carefully(sums, seen_values(p, c));
    } else {
        pack_narrow_weights(p.narrow_room.scores, v.count, p.rows, starts_in_pair(p.seen));
        narrow_values(sums);
    }
    if (direct) { fold_sum<1>({load(weight_sums)}, p.state); }
    fold_narrow_sums(sums, p.state.keep, p.state.take, p.out);
}

#endif

void attend(const shape& s, const task& t, const workspace& w, const panel& p, chunk& c) {
#if TILEWISE_NARROW_PANELS
    if (p.narrow) { return attend_narrow(s, t, w, p, c); }
#endif
    if (vector_multiple == 2) { return attend<2>(s, t, p, c, w.scores); }
    switch (p.vectors) {
        case 1:
            return attend<1>(s, t, p, c, w.scores);
        case 2:
            return attend<2>(s, t, p, c, w.scores);
        default:
            return attend<3>(s, t, p, c, w.scores);
    }
}

/// The panels of a task, ready to attend, in the scratch.
workspace start(const shape& s, const task& t, std::byte* scratch) {
    arena memory(scratch);
    workspace w = lay_out(memory, s, t.first_row, t.rows);
    point_to(t, w);
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        load_queries(s, t.q, w.panels[i]);
        find_visible_keys(s, t, w.panels[i]);
        start_rows(s, t, w.panels[i]);
    }
    return w;
}

void attend_all(const shape& s, const task& t, const workspace& w) {
    visit_chunks(s, t, w, [&](const panel& p, chunk& c) { attend(s, t, w, p, c); });
}

void write_results(const shape& s, const task& t, const workspace& w) {
    for (std::int64_t i = 0; i < w.panel_count; ++i) { divide_rows(s, w.panels[i]); }
    if (t.entropy.data != nullptr || t.weights.data != nullptr) { look_again(s, t, w); }
    for (std::int64_t i = 0; i < w.panel_count; ++i) { store_rows(s, t, w.panels[i]); }
}

void forward(const shape& s, const task& t, std::byte* scratch) {
    const workspace w = start(s, t, scratch);
    attend_all(s, t, w);
    write_results(s, t, w);
}

real* states_of(const shape& s, const task& t, const panel& p) {
    return static_cast<real*>(t.states) + (p.first_row - t.first_row) * s.state_floats;
}

void save_all(const shape& s, const task& t, const workspace& w) {
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        save_states(s, w.panels[i], states_of(s, t, w.panels[i]));
    }
}

void load_all(const shape& s, const task& t, const workspace& w) {
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        load_states(s, w.panels[i], states_of(s, t, w.panels[i]));
    }
}

void start_states(const shape& s, const task& t, std::byte* scratch) { save_all(s, t, start(s, t, scratch)); }

void advance(const shape& s, const task& t, std::byte* scratch) {
    const workspace w = start(s, t, scratch);
    load_all(s, t, w);
    attend_all(s, t, w);
    save_all(s, t, w);
}

void chunk_states(const shape& s, const task& t, std::byte* scratch) {
    const workspace w = start(s, t, scratch);
    const std::int64_t first = block_start(t.begin, contract::chunk_keys);
    const std::int64_t chunks = (t.end - first + contract::chunk_keys - 1) / contract::chunk_keys;
    clear_states(s, chunks * t.rows, static_cast<real*>(t.states));
    visit_chunks(s, t, w, [&](const panel& p, chunk& c) {
        clear_panel(s, p);
        attend(s, t, w, p, c);
        const std::int64_t number = (c.keys.first - first) / contract::chunk_keys;
        save_states(s, p, states_of(s, t, p) + number * t.rows * s.state_floats);
    });
}

void finish(const shape& s, const task& t, std::byte* scratch) {
    const workspace w = start(s, t, scratch);
    load_all(s, t, w);
    write_results(s, t, w);
}

std::size_t scratch_bytes(const shape& s) {
    const std::size_t rows = block_scratch_bytes(s, s.block_rows);
    const std::size_t keys = key_scratch_bytes(s);
    return rows > keys ? rows : keys;
}

}  // namespace

#define TILEWISE_STRINGIFY(name) #name
#define TILEWISE_NAME(name) TILEWISE_STRINGIFY(name)

extern const table kernels;
const table kernels{TILEWISE_NAME(TILEWISE_ISA),
                    static_cast<int>(panel_width),
                    max_depth,
                    scratch_bytes,
                    forward,
                    start_states,
                    advance,
                    chunk_states,
                    fold_states,
                    finish,
                    sum_key_weights};

}  // namespace tilewise::kernels::TILEWISE_ISA
