// The suites of attention_benchmark: each function adds the rows of one.

#ifndef TILEWISE_SUITES_SUITES_HPP
#define TILEWISE_SUITES_SUITES_HPP

#include <string>
#include <string_view>
#include <vector>

#include "shape.hpp"

namespace tilewise::suites {

struct row {
    std::string name;
    shape what;
    bool usual = false;      ///< a part of the default selection
    bool competing = false;  ///< another process keeps a core busy meanwhile
};

class row_list {
public:
    void add(const std::string& name, const shape& s, bool usual) {
        rows_.push_back({name, s, usual, false});
    }
    void add_competing(const std::string& name, const shape& s) { rows_.push_back({name, s, false, true}); }

    [[nodiscard]] const std::vector<row>& all() const { return rows_; }

    /// Makes benchmarks of the usual rows, or of all.
    void register_rows(bool all) const;

    /// The most memory that this process has had resident after one call of that row, in bytes; 0 if there is
    /// none of that name. For a process of its own.
    [[nodiscard]] std::size_t peak_memory_of(std::string_view name) const;

private:
    std::vector<row> rows_;
};

/// How a process is asked for peak_memory_of.
inline constexpr std::string_view peak_memory_option = "--peak_memory_of=";

void add_prefill(row_list& to);
void add_decode(row_list& to);
void add_rows(row_list& to);
void add_masks(row_list& to);
void add_layouts(row_list& to);
void add_models(row_list& to);
void add_calls(row_list& to);
void add_threads(row_list& to);

/// The fastest instruction set of the machine, which is what a user runs.
[[nodiscard]] isa fastest();

/// "avx512/", for names.
[[nodiscard]] std::string isa_prefix(isa which);

/// Storage types of keys and values.
[[nodiscard]] const std::vector<element_type>& key_types();

/// Queries are stored as keys are, unless these are quantised: then f32.
[[nodiscard]] element_type query_type_for(element_type keys);

/// The shape in each of these types, and in bf16 with arithmetic::fastest.
[[nodiscard]] std::vector<shape> in_all_types(shape s);

/// "4096" or "128k", the lengths of a row's name.
[[nodiscard]] std::string length_name(std::int64_t tokens);

}  // namespace tilewise::suites

#endif
