#!/bin/sh
# Builds main.cpp with what pkg-config says of the installed library.
# build.sh <C++ compiler> <pkg-config> <output> [<flag>...]

set -eu
compiler=$1
pkg_config=$2
output=$3
shift 3
source=$(dirname "$0")/../main.cpp
flags=$("$pkg_config" --cflags --libs tilewise)
# shellcheck disable=SC2086 # the flags are words
"$compiler" -std=c++20 "$source" -o "$output" $flags "$@"
