// From the structures of tilewise.h to those of the C++ headers, for c_api.cpp. What cannot be said in C++ is
// refused here (null pointers, negative counts, numbers that name nothing); all else by the functions called.

#ifndef TILEWISE_SRC_C_VALUES_HPP
#define TILEWISE_SRC_C_VALUES_HPP

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <tilewise/attention.hpp>

#include "tilewise.h"
#include "views.hpp"

namespace tilewise {

/// `value`, if an enumeration has so many values.
template <class Enumeration>
Enumeration enumerator(std::string_view name, std::int32_t value, int values) {
    if (value < 0 || value >= values) {
        refuse(name, ": number ", value, " given, it must be from 0 to ", values - 1);
    }
    return static_cast<Enumeration>(value);
}

inline void require_pointer(std::string_view name, const void* pointer) {
    if (pointer == nullptr) { refuse(name, ": null pointer given"); }
}

/// `count` elements.
template <class Element>
std::span<Element> span_of(std::string_view name, Element* data, std::int64_t count) {
    constexpr auto most =
        std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(sizeof(Element));
    if (count < 0 || count > most) {
        refuse(name, ": ", count, " elements given, it must be from 0 to ", most);
    }
    if (count > 0) { require_pointer(name, data); }
    return {data, static_cast<std::size_t>(count)};
}

tensor tensor_of(std::string_view name, const tilewise_tensor& from);
/// The same of an argument, which must not be null.
tensor tensor_of(std::string_view name, const tilewise_tensor* from);
tilewise_tensor c_tensor_of(const tensor& from);

/// Options, and what they point to. They begin as those of C, which must outlive them.
class c_options {
public:
    explicit c_options(const tilewise_options* how);
    c_options(const c_options&) = delete;
    c_options& operator=(const c_options&) = delete;
    ~c_options() = default;

    [[nodiscard]] const options& get() const { return how_; }

private:
    void read_masks();
    void read_scores();
    void read_results();

    tilewise_options from_{};
    options how_;
};

}  // namespace tilewise

#endif
