// The suites of attention_benchmark. Each function registers one; a row that is not usual is registered only
// if a filter was given that may ask for it.

#ifndef TILEWISE_SUITES_SUITES_HPP
#define TILEWISE_SUITES_SUITES_HPP

#include <string>
#include <vector>

#include "shape.hpp"

namespace tilewise::suites {

class registry {
public:
    explicit registry(bool everything) : everything_(everything) {}

    /// Times one problem. `usual`: a part of the default selection.
    void add(const std::string& name, const shape& s, bool usual) const;

    /// The same with another thread that keeps a core busy, by wall time.
    void add_competing(const std::string& name, const shape& s) const;

private:
    bool everything_;
};

void add_prefill(const registry& to);
void add_decode(const registry& to);
void add_rows(const registry& to);
void add_masks(const registry& to);
void add_layouts(const registry& to);
void add_models(const registry& to);
void add_calls(const registry& to);
void add_threads(const registry& to);

/// The fastest instruction set of the machine, which is what a user runs.
[[nodiscard]] isa fastest();

/// "avx512/", for names.
[[nodiscard]] std::string isa_prefix(isa which);

/// Storage types of keys and values.
[[nodiscard]] const std::vector<element_type>& key_types();

/// Queries are stored as keys are, unless these are quantised: then f32.
[[nodiscard]] element_type query_type_for(element_type keys);

/// "4096" or "128k", the lengths of a row's name.
[[nodiscard]] std::string length_name(std::int64_t tokens);

}  // namespace tilewise::suites

#endif
