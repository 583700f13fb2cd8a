// Memory of any element type, filled with numbers that a model could have.

#ifndef TILEWISE_SUITES_STORAGE_HPP
#define TILEWISE_SUITES_STORAGE_HPP

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tilewise/element_type.hpp>

#include "aligned_buffer.hpp"

namespace tilewise::suites {

/// Elements side by side at a multiple of 64 bytes, whole pages of them. Filling repeats a few thousand
/// elements, so that gigabytes are made in seconds.
class storage {
public:
    storage() = default;
    /// Throws std::bad_alloc if it cannot be had. `elements` is a multiple of the type's block.
    storage(element_type type, std::int64_t elements);

    [[nodiscard]] const void* data() const { return memory_.get(); }
    [[nodiscard]] void* data() { return memory_.get(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }  ///< a multiple of 4096

private:
    measure::aligned_buffer memory_;
    std::size_t bytes_ = 0;
};

}  // namespace tilewise::suites

#endif
