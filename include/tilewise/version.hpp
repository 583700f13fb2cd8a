// The version of these headers (semantic versioning). CMake reads it from here.

#ifndef TILEWISE_VERSION_HPP
#define TILEWISE_VERSION_HPP

#define TILEWISE_VERSION_MAJOR 0
#define TILEWISE_VERSION_MINOR 1
#define TILEWISE_VERSION_PATCH 0

#endif
