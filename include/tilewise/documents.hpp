// Packed documents, given as one id per token instead of boundaries.

#ifndef TILEWISE_DOCUMENTS_HPP
#define TILEWISE_DOCUMENTS_HPP

#include <cstdint>
#include <span>
#include <vector>

#include <tilewise/export.hpp>

namespace tilewise {

/// The boundaries of documents whose tokens have these ids, for options::documents: 7 7 7 2 2 gives 0 3 5.
/// Any numbers are ids, and tokens of the same id must be next to each other. Without tokens, the boundaries
/// are 0 0: no position is in a document. They serve as options::query_starts and key_starts as well.
///
/// Throws std::invalid_argument, naming the position and the id, if an id comes back after another one.
[[nodiscard]] TILEWISE_API std::vector<std::int64_t> document_boundaries(std::span<const std::int64_t> ids);

}  // namespace tilewise

#endif
