// Symbol visibility. TILEWISE_SHARED is defined by the CMake target of the shared library, and
// TILEWISE_BUILDING while that library itself is compiled.

#ifndef TILEWISE_EXPORT_HPP
#define TILEWISE_EXPORT_HPP

#if defined(_WIN32) && defined(TILEWISE_SHARED)
#    if defined(TILEWISE_BUILDING)
#        define TILEWISE_API __declspec(dllexport)
#    else
#        define TILEWISE_API __declspec(dllimport)
#    endif
#elif defined(__GNUC__)
#    define TILEWISE_API __attribute__((visibility("default")))
#else
#    define TILEWISE_API
#endif

#endif
