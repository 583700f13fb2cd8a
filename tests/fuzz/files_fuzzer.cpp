// Any bytes as a .npy file: the reader of the tilewise program either says what is wrong with them, or gives
// an array that has exactly the elements that the file has. And three files for `tilewise run`.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <tilewise/tilewise.hpp>

#include "byte_source.hpp"
#include "errors.hpp"
#include "npy.hpp"
#include "run_program.hpp"

using namespace tilewise_tests;

namespace {

/// What `read` gives; nothing if it says that the file is wrong. Any other exception is a finding.
template <class Read>
auto try_to(const memory_file& file, Read read) -> std::optional<decltype(read("", file.path()))> {
    try {
        return read("--q", file.path());
    } catch (const tilewise::cli::run_error& error) {
        if (std::string(error.what()).rfind("--q: '", 0) != 0) {
            report("a message without the option's name");
        }
        return std::nullopt;
    } catch (const std::exception& error) {
        report(std::string("an exception of the wrong type: ") + error.what());
    }
}

void check(const tilewise::cli::array& array, const tilewise::cli::raw_array& raw) {
    if (array.shape != raw.shape || array.fortran_order != raw.fortran_order) {
        report("the readers differ");
    }
    const bool is_half = array.type == tilewise::element_type::f16;
    const void* const elements =
        is_half ? static_cast<const void*>(array.halves.data()) : array.floats.data();
    if (raw.bytes.size() != array.floats.size() * 4 + array.halves.size() * 2) { report("another size"); }
    if (!raw.bytes.empty() && std::memcmp(elements, raw.bytes.data(), raw.bytes.size()) != 0) {
        report("other elements");
    }
    if (array.to_f32().size() != array.floats.size() + array.halves.size()) { report("elements got lost"); }
}

/// The view can be computed with: as queries, keys and values at once.
void use(const tilewise::cli::array& array) {
    const tilewise::const_tensor view = array.view();
    std::size_t bytes = 0;
    static_cast<void>(tilewise::plan_attention(
        view, view, view,
        tilewise::bhsd<float>(reinterpret_cast<float*>(std::uintptr_t{1} << 60U), view.batch(), view.heads(),
                              view.tokens(), view.head_dim())));
    for (std::int64_t b = 0; b < view.batch() && view.heads() > 0 && view.tokens() > 0; ++b) {
        if (view.head_dim() == 0) { break; }
        const auto offset = static_cast<std::size_t>(
            b * view.strides[0] + (view.heads() - 1) * view.strides[1] +
            (view.tokens() - 1) * view.strides[2] + (view.head_dim() - 1) * view.strides[3]);
        bytes = offset + 1;
    }
    if (bytes > array.floats.size() + array.halves.size()) { report("the view is larger than its memory"); }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    // No .npy file begins so.
    if (size > 0 && data[0] == 'r') {
        byte_source bytes(data + 1, size - 1);
        check_run(bytes);
        return 0;
    }
    const memory_file file(data, size);
    const auto raw = try_to(file, tilewise::cli::read_raw_npy);
    const auto array = try_to(file, tilewise::cli::read_npy);
    if (!array.has_value()) { return 0; }
    if (!raw.has_value()) { report("only one of the readers accepts the file"); }
    check(*array, *raw);
    try {
        use(*array);
    } catch (const std::invalid_argument&) { return 0; }
    return 0;
}
