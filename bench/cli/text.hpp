// Numbers, tables and lengths as people read and write them.

#ifndef TILEWISE_CLI_TEXT_HPP
#define TILEWISE_CLI_TEXT_HPP

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace tilewise::cli {

[[nodiscard]] std::string format_seconds(double seconds);    ///< "1.23 s", "34.5 ms", "6.78 us"
[[nodiscard]] std::string format_bytes(std::size_t bytes);   ///< "512 KiB", "1.5 GiB"
[[nodiscard]] std::string format_count(std::int64_t count);  ///< "16,384"
[[nodiscard]] std::string format_fixed(double value, int digits);
[[nodiscard]] std::string format_percent(double fraction);  ///< "87 %"
[[nodiscard]] std::string format_scientific(double value);  ///< "1.2e-07"

/// "1k,4k,300" as numbers; k is 1024 and m 1024 * 1024. Throws usage_error naming `option` for anything
/// else, for numbers below 1 and for those above 2^40.
[[nodiscard]] std::vector<std::int64_t> parse_lengths(const std::string& option, const std::string& text);

/// Columns as wide as their widest cell; text to the left, numbers to the right.
class table {
public:
    /// One letter per column: 'l' left, 'r' right.
    explicit table(std::string alignments) : alignments_(std::move(alignments)) {}

    void add(std::vector<std::string> cells) { rows_.push_back({std::move(cells), {}}); }

    /// A row whose last cells are one text that may be wider than any column.
    void add_with_remark(std::vector<std::string> cells, std::string remark) {
        rows_.push_back({std::move(cells), std::move(remark)});
    }
    void add_line() { rows_.push_back({}); }  ///< a rule across the table

    void print(std::ostream& out) const;

private:
    struct row {
        std::vector<std::string> cells;
        std::string remark;
    };
    std::string alignments_;
    std::vector<row> rows_;
};

}  // namespace tilewise::cli

#endif
