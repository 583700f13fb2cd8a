#include <tilewise/documents.hpp>

#include <cstddef>
#include <unordered_map>

#include "errors.hpp"

namespace tilewise {

std::vector<std::int64_t> document_boundaries(std::span<const std::int64_t> ids) {
    std::vector<std::int64_t> boundaries = {0};
    std::unordered_map<std::int64_t, std::size_t> ends;
    for (std::size_t token = 0; token < ids.size();) {
        const std::int64_t id = ids[token];
        const auto [found, is_new] = ends.try_emplace(id);
        if (!is_new) {
            raise(status_of(refuse("document_boundaries: id ", id, " at position ", token,
                                   " given, document ", id, " ended at position ", found->second,
                                   "; tokens of a document must be next to each other")));
        }
        while (token < ids.size() && ids[token] == id) { ++token; }
        found->second = token - 1;
        boundaries.push_back(static_cast<std::int64_t>(token));
    }
    if (ids.empty()) { boundaries.push_back(0); }
    return boundaries;
}

}  // namespace tilewise
