# Debian's cross compiler for AArch64; what it builds runs under qemu-user.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
# Another compiler may be given, as the preset aarch64-clang does.
if(NOT CMAKE_CXX_COMPILER)
  set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
  set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
endif()

find_program(TILEWISE_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(TILEWISE_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${TILEWISE_QEMU} -L /usr/aarch64-linux-gnu)
endif()

# Libraries and packages of the build machine are of no use.
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu /usr/lib/gcc-cross/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
