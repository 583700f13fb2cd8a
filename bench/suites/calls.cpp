// small_call/ISA/d:D/T:LENGTH: what a call costs beside its arithmetic. competing/...: another process keeps
// a core busy; two threads should still not be slower than one.

#include <tilewise/isa.hpp>

#include "suites.hpp"

namespace tilewise::suites {

void add_calls(row_list& to) {
    for (const isa which : available_isas()) {
        for (const std::int64_t dim : {64, 128}) {
            for (const std::int64_t tokens : {1, 4, 16, 64, 128}) {
                shape s;
                s.isa = which;
                s.queries = s.keys = tokens;
                s.head_dim = s.value_dim = dim;
                s.mask = masking::causal;
                const std::string name =
                    isa_prefix(which) + "d:" + std::to_string(dim) + "/T:" + length_name(tokens);
                to.add("small_call/" + name, s, which == fastest() && dim == 64);
            }
        }
        for (const int threads : {1, 2}) {
            shape s;
            s.isa = which;
            s.queries = s.keys = which == isa::sse2 ? 1024 : 4096;
            s.head_dim = s.value_dim = 64;
            s.mask = masking::causal;
            s.threads = threads;
            to.add_competing(
                "competing/" + isa_prefix(which) + "T:" + length_name(s.keys) + "/" + threads_name(s), s);
        }
    }
}

}  // namespace tilewise::suites
