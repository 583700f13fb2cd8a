// What weak_symbols.cmake must find: an inline function that is compiled for one instruction set and could
// be linked into code for another.

inline int shared_by_all(int value) { return value + 1; }

int (*const keep_it)(int) = shared_by_all;
int call_it(int value);
int call_it(int value) { return keep_it(value); }
