#include "isa_tables.hpp"

#include <stdexcept>
#include <string>

// TILEWISE_ISAS comes from CMake: X(name) for every instruction set that the build has.
#define X(name)                                 \
    namespace tilewise::measure::name {         \
    extern const machine_kernels machine_table; \
    extern const naive_kernels naive_table;     \
    }
TILEWISE_ISAS
#undef X
#define X(name)                                \
    namespace tilewise::measure::name##_bf16 { \
        extern const pair_kernels pair_table;  \
    }
TILEWISE_PAIRED_ISAS
#undef X

namespace tilewise::measure {
namespace {

struct entry {
    isa which;
    const machine_kernels* machine;
    const naive_kernels* naive;
};

const entry entries[] = {
#define X(name) {isa::name, &name::machine_table, &name::naive_table},
    TILEWISE_ISAS
#undef X
};

const entry& entry_of(isa which) {
    for (const entry& candidate : entries) {
        if (candidate.which == which) { return candidate; }
    }
    throw std::invalid_argument("tilewise: no measuring loops for the instruction set " +
                                std::string(isa_name(which)));
}

}  // namespace

const pair_kernels& pair_kernels_of(isa which) {
#define X(name) \
    if (which == isa::name) { return name##_bf16::pair_table; }
    TILEWISE_PAIRED_ISAS
#undef X
    throw std::invalid_argument("tilewise: no products of bf16 pairs for the instruction set " +
                                std::string(isa_name(which)));
}
const machine_kernels& machine_kernels_of(isa which) { return *entry_of(which).machine; }
const naive_kernels& naive_kernels_of(isa which) { return *entry_of(which).naive; }

}  // namespace tilewise::measure
