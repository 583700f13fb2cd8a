// A process that keeps a core busy as long as the object lives, as other programs of a machine do. Not a
// thread: its time would be counted as this program's.

#ifndef TILEWISE_MEASURE_BUSY_PROCESS_HPP
#define TILEWISE_MEASURE_BUSY_PROCESS_HPP

#include <sys/types.h>

namespace tilewise::measure {

class busy_process {
public:
    /// Without effect if the system makes no more processes.
    busy_process();
    ~busy_process();
    busy_process(const busy_process&) = delete;
    busy_process& operator=(const busy_process&) = delete;

private:
    pid_t child_;
};

}  // namespace tilewise::measure

#endif
