#include "hostile_c.hpp"

#include <tilewise.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "entry_points.hpp"

namespace tilewise_tests {
namespace {

using count = std::int64_t;

struct c_call {
    std::array<tilewise_tensor, 4> views;  ///< q, k, v, out
    std::array<const tilewise_tensor*, 4> given;
    tilewise_options how;
    std::vector<std::byte> longer;  ///< the options of a later version, if any

    [[nodiscard]] const tilewise_options* options() const {
        return longer.empty() ? &how : reinterpret_cast<const tilewise_options*>(longer.data());
    }
};

/// A number that is no enumerator, whatever the enumeration.
std::int32_t no_enumerator(byte_source& bytes) {
    return bytes.pick(std::array<std::int32_t, 6>{-1, 100, 101, 255, std::numeric_limits<std::int32_t>::min(),
                                                  std::numeric_limits<std::int32_t>::max()});
}

/// A number of elements that no array has.
count no_count(byte_source& bytes) {
    constexpr count largest = std::numeric_limits<count>::max();
    return bytes.pick(std::array<count, 5>{-1, -largest - 1, largest, largest / 4 + 1, -4096});
}

tilewise_tensor* view_in_options(tilewise_options& how, byte_source& bytes) {
    return bytes.pick(std::array{&how.first_keys, &how.last_keys, &how.mask, &how.blocks, &how.bias, &how.lse,
                                 &how.row_maximum, &how.entropy, &how.key_weights, &how.weights,
                                 &how.block_table});
}

/// Of one array: it is null, or has a number of elements that no array has.
void spoil_array(tilewise_options& how, byte_source& bytes) {
    const count wrong = no_count(bytes);
    const bool is_null = bytes.one_in(2);
    const auto spoil = [&]<class Element>(const Element*& data, count& number, count least) {
        static constexpr Element zero{};
        data = is_null ? nullptr : &zero;
        number = is_null ? least : wrong;
    };
    switch (bytes.between(0, 6)) {
        case 0:
            return spoil(how.documents, how.document_count, 2);
        case 1:
            return spoil(how.key_lengths, how.key_length_count, 1);
        case 2:
            return spoil(how.query_starts, how.start_count, 2);
        case 3:
            return spoil(how.weight_rows, how.weight_row_count, 1);
        case 4:
            return spoil(how.sinks, how.sink_count, 1);
        case 5:
            return spoil(how.key_positions, how.key_position_count, 1);
        default:
            return spoil(how.alibi_slopes, how.alibi_slope_count, 1);
    }
}

/// Options of another version, or of none.
void spoil_size(c_call& call, byte_source& bytes) {
    constexpr std::size_t size = sizeof(tilewise_options);
    constexpr std::size_t least = offsetof(tilewise_options, key_positions);  // that the first version had
    if (bytes.one_in(2)) {
        call.how.size = bytes.one_in(2) ? static_cast<std::size_t>(bytes.between(0, least - 1))
                                        : std::size_t{1} << bytes.between(17, 63);
        return;
    }
    call.longer.assign(size + static_cast<std::size_t>(bytes.between(1, 40)), std::byte{0});
    call.how.size = call.longer.size();
    std::memcpy(call.longer.data(), &call.how, size);
    call.longer[size + static_cast<std::size_t>(bytes.byte()) % (call.longer.size() - size)] = std::byte{1};
}

void spoil(c_call& call, byte_source& bytes) {
    const auto which = static_cast<std::size_t>(bytes.between(0, 3));
    switch (bytes.between(0, 8)) {
        case 0:
            call.given[which] = nullptr;
            break;
        case 1:
            call.views[which].type = no_enumerator(bytes);
            break;
        case 2:
            call.views[which].reserved = no_enumerator(bytes);
            break;
        case 3:
            view_in_options(call.how, bytes)->type = no_enumerator(bytes);
            break;
        case 4:
            view_in_options(call.how, bytes)->reserved = 1;
            break;
        case 5:
            (bytes.one_in(2) ? call.how.causal : call.how.arithmetic) = no_enumerator(bytes);
            break;
        case 6:
            call.how.reserved = no_enumerator(bytes);
            break;
        case 7:
            spoil_size(call, bytes);
            break;
        default:
            spoil_array(call.how, bytes);
    }
}

}  // namespace

void check_c(const hostile_call& call, byte_source& bytes, arena& memory) {
    if (!can_be_said_in_c(call.how)) { return; }
    c_call said{{in_c(call.q), in_c(call.k), in_c(call.v), in_c(call.out)}, {}, in_c(call.how), {}};
    for (std::size_t n = 0; n < said.views.size(); ++n) { said.given[n] = &said.views[n]; }
    spoil(said, bytes);
    const std::vector<std::byte> before = memory.bytes();
    tilewise_plan plan{};
    plan.size = sizeof plan;
    const auto& [q, k, v, out] = said.given;
    const tilewise_options* const how = said.options();
    for (const tilewise_status status :
         {tilewise_attention(q, k, v, out, how), tilewise_reference_attention(q, k, v, out, how),
          tilewise_plan_attention(q, k, v, out, how, &plan)}) {
        if (refusal_of(status).empty()) { report("a mistake in C was accepted"); }
    }
    if (memory.bytes() != before) { report("a refused call from C wrote something"); }
    if (plan.threads != 0 || plan.scratch_bytes != 0) { report("a refused plan was written"); }
}

}  // namespace tilewise_tests
