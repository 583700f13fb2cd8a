#include "text.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "errors.hpp"

namespace tilewise::cli {
namespace {

std::string print(const char* format, int digits, double value) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), format, digits, value);
    return text.data();
}

/// Three digits, but no fewer than those before the point.
std::string three_digits(double value) {
    const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return format_fixed(value, digits);
}

std::int64_t parse_length(const std::string& option, const std::string& text) {
    constexpr std::int64_t most = std::int64_t{1} << 40;
    std::int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    std::int64_t unit = 1;
    bool good = error == std::errc() && value >= 1 && value <= most && end - rest <= 1;
    if (good && rest != end) {
        const int letter = std::tolower(static_cast<unsigned char>(*rest));
        unit = letter == 'k' ? 1024 : letter == 'm' ? 1024 * 1024 : 0;
        good = unit != 0 && value <= most / unit;
    }
    if (!good) {
        throw usage_error(option + ": '" + text +
                          "' given; it takes lengths from 1 to 2^40, separated by "
                          "commas, with k for 1024 and m for 1024 * 1024, such as 1k,4k,16k");
    }
    return value * unit;
}

}  // namespace

std::string format_fixed(double value, int digits) { return print("%.*f", digits, value); }

std::string format_scientific(double value) { return value == 0 ? "0" : print("%.*e", 1, value); }

std::string format_percent(double fraction) { return format_fixed(100 * fraction, 0) + " %"; }

std::string format_seconds(double seconds) {
    if (seconds < 0.9995e-3) { return three_digits(seconds * 1e6) + " us"; }
    if (seconds < 0.9995) { return three_digits(seconds * 1e3) + " ms"; }
    return three_digits(seconds) + " s";
}

std::string format_bytes(std::size_t bytes) {
    constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1023.5 && unit + 1 < units.size()) {
        value /= 1024;
        ++unit;
    }
    const bool whole = unit == 0 || value >= 99.95 || value == std::floor(value);
    return format_fixed(value, whole ? 0 : 1) + " " + units[unit];
}

std::string format_count(std::int64_t count) {
    std::string digits = std::to_string(count);
    const std::size_t sign = count < 0 ? 1 : 0;
    for (std::size_t at = digits.size(); at > sign + 3;) {
        at -= 3;
        digits.insert(at, ",");
    }
    return digits;
}

std::vector<std::int64_t> parse_lengths(const std::string& option, const std::string& text) {
    std::vector<std::int64_t> lengths;
    for (std::size_t first = 0; first <= text.size();) {
        const std::size_t comma = std::min(text.find(',', first), text.size());
        lengths.push_back(parse_length(option, text.substr(first, comma - first)));
        first = comma + 1;
    }
    return lengths;
}

void table::print(std::ostream& out) const {
    std::vector<std::size_t> widths(alignments_.size());
    for (const row& r : rows_) {
        for (std::size_t c = 0; c < r.cells.size(); ++c) {
            widths[c] = std::max(widths[c], r.cells[c].size());
        }
    }
    std::size_t all = 0;
    for (const std::size_t width : widths) { all += width + 2; }
    for (const row& r : rows_) {
        if (r.cells.empty() && r.remark.empty()) { out << std::string(all - 2, '-') << '\n'; }
        std::string line;
        for (std::size_t c = 0; c < r.cells.size(); ++c) {
            const std::string padding(widths[c] - r.cells[c].size(), ' ');
            line += alignments_[c] == 'l' ? r.cells[c] + padding : padding + r.cells[c];
            line += "  ";
        }
        line += r.remark;
        line.erase(line.find_last_not_of(' ') + 1);
        if (!line.empty()) { out << line << '\n'; }
    }
}

}  // namespace tilewise::cli
