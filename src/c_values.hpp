// From the structures of tilewise.h to those of the C++ headers, for c_api.cpp. What cannot be said in C++ is
// refused here (null pointers, negative counts, numbers that name nothing); all else by the functions called.

#ifndef TILEWISE_SRC_C_VALUES_HPP
#define TILEWISE_SRC_C_VALUES_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <tilewise/attention.hpp>

#include "tilewise.h"
#include "views.hpp"

namespace tilewise {

/// `value`, if an enumeration has so many values.
template <class Enumeration>
[[nodiscard]] bool read_enumerator(std::string_view name, std::int32_t value, int values, Enumeration& to) {
    if (value < 0 || value >= values) {
        return refuse(name, ": number ", value, " given, it must be from 0 to ", values - 1);
    }
    to = static_cast<Enumeration>(value);
    return true;
}

[[nodiscard]] inline bool require_pointer(std::string_view name, const void* pointer) {
    if (pointer == nullptr) { return refuse(name, ": null pointer given"); }
    return true;
}

/// `count` elements.
template <class Element>
[[nodiscard]] bool read_span(std::string_view name, Element* data, std::int64_t count,
                             std::span<Element>& to) {
    constexpr auto most =
        std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(sizeof(Element));
    if (count < 0 || count > most) {
        return refuse(name, ": ", count, " elements given, it must be from 0 to ", most);
    }
    if (count > 0 && !require_pointer(name, data)) { return false; }
    to = {data, static_cast<std::size_t>(count)};
    return true;
}

[[nodiscard]] bool read_tensor(std::string_view name, const tilewise_tensor& from, tensor& to);
[[nodiscard]] bool read_tensor(std::string_view name, const tilewise_tensor& from, const_tensor& to);
/// The same of an argument, which must not be null.
template <class Tensor>
[[nodiscard]] bool read_tensor(std::string_view name, const tilewise_tensor* from, Tensor& to) {
    return require_pointer(name, from) && read_tensor(name, *from, to);
}
/// The same of one that may be null: its data is null then.
template <class Tensor>
[[nodiscard]] bool read_optional_tensor(std::string_view name, const tilewise_tensor* from, Tensor& to) {
    to = {};
    return from == nullptr || read_tensor(name, *from, to);
}
tilewise_tensor c_tensor_of(const tensor& from);

/// A plan that the caller has, of any version.
[[nodiscard]] bool check_plan(const tilewise_plan* result);
/// The members that both versions have; `size` stays the caller's.
void write_plan(const plan& from, tilewise_plan* to);

inline tilewise_status c_status(const status& result) { return static_cast<tilewise_status>(result.code); }
inline tilewise_status c_status(bool worked) { return c_status(status_of(worked)); }
static_assert(static_cast<int>(status_code::stream_finished) == TILEWISE_STREAM_FINISHED);

/// No version's structures are larger: a size that was never set is not followed.
constexpr std::size_t largest_size = std::size_t{1} << 16U;

/// Any version of a structure that grows, in the form of this one: it begins with its size. Members that only
/// a later version has must be zeros. Null: all are.
template <class Structure>
[[nodiscard]] bool read_structure(std::string_view name, const Structure* from, std::size_t least_size,
                                  Structure& to) {
    to = {};
    if (from == nullptr) { return true; }
    if (from->size < least_size || from->size > largest_size) {
        return refuse(name, ": size is ", from->size, ", it must be sizeof(tilewise_", name, "), ", sizeof to,
                      " in this version");
    }
    std::memcpy(&to, from, std::min(from->size, sizeof to));
    const std::span bytes(reinterpret_cast<const std::byte*>(from), from->size);
    for (const std::byte byte : bytes.subspan(std::min(from->size, sizeof to))) {
        if (byte != std::byte{0}) {
            return refuse(name, ": size is ", from->size, ", and members beyond ", sizeof to,
                          ", which are of a later version, are not 0");
        }
    }
    return true;
}

/// Options, and what they point to. They begin as those of C, which must outlive them.
class c_options {
public:
    c_options() = default;
    c_options(const c_options&) = delete;
    c_options& operator=(const c_options&) = delete;
    ~c_options() = default;

    [[nodiscard]] bool read(const tilewise_options* how);
    [[nodiscard]] const options& get() const { return how_; }

private:
    [[nodiscard]] bool read_positions();
    [[nodiscard]] bool read_masks();
    [[nodiscard]] bool read_scores();
    [[nodiscard]] bool read_results();

    tilewise_options from_{};
    options how_;
};

}  // namespace tilewise

#endif
