// What weak_symbols.cmake must find: an inline function that is compiled for one instruction set and could
// be linked into code for another.

inline int shared_by_all(int value) { return value + 1; }

// Taking its address makes the compiler emit it.
extern int (*address_of_shared_by_all)(int);
int (*address_of_shared_by_all)(int) = shared_by_all;
