// Calls that depend on earlier ones, and functions that take few arguments. See sequences.hpp.

#include <cstddef>
#include <cstdint>

#include "sequences.hpp"

using namespace tilewise_tests;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    byte_source bytes(data, size);
    switch (bytes.between(0, 7)) {
        case 5:
            check_states(bytes);
            break;
        case 6:
            check_other_calls(bytes);
            break;
        case 3:
        case 4:
        case 7:
            check_cache(bytes);
            break;
        default:
            check_stream(bytes);
    }
    return 0;
}
