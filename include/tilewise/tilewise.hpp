// Everything that Tilewise offers.

#ifndef TILEWISE_TILEWISE_HPP
#define TILEWISE_TILEWISE_HPP

#include <tilewise/attention.hpp>
#include <tilewise/documents.hpp>
#include <tilewise/element_type.hpp>
#include <tilewise/half.hpp>
#include <tilewise/isa.hpp>
#include <tilewise/kv_cache.hpp>
#include <tilewise/merge.hpp>
#include <tilewise/onnx.hpp>
#include <tilewise/parallel_for.hpp>
#include <tilewise/quantize.hpp>
#include <tilewise/quantized.hpp>
#include <tilewise/reference.hpp>
#include <tilewise/rotary.hpp>
#include <tilewise/status.hpp>
#include <tilewise/stream.hpp>
#include <tilewise/tensor.hpp>

#endif
