// The arithmetic and the copies of NCCL's kernels.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "engine/core/half.h"
#include "tests/emulated_gpu/nccl/clique.h"

namespace emulated_nccl {
namespace {

using lockstep::ArithmeticOf;

template <typename T>
T combine(ncclRedOp_t op, T a, T b) {
  switch (op) {
    case ncclProd:
      return a * b;
    case ncclMin:
      return std::min(a, b);
    case ncclMax:
      return std::max(a, b);
    default:
      return a + b;
  }
}

// Element i of all ranks' inputs.
template <typename T>
T reduced(const std::vector<Part>& parts, std::size_t i) {
  const ncclRedOp_t op = parts[0].op;
  ArithmeticOf<T> total{};
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    auto value = static_cast<ArithmeticOf<T>>(static_cast<const T*>(parts[rank].input)[i]);
    if (op == ncclAvg) value /= static_cast<ArithmeticOf<T>>(parts.size());
    total = rank == 0 ? value : combine(op, total, value);
  }
  return static_cast<T>(total);
}

template <typename T>
void move(const std::vector<Part>& parts, std::size_t rank) {
  const Part& mine = parts[rank];
  auto* output = static_cast<T*>(mine.output);
  const auto copy = [&](const Part& from, T* to) {
    if (mine.count > 0) std::memcpy(to, from.input, mine.count * sizeof(T));
  };
  switch (mine.kind) {
    case Kind::all_reduce:
      for (std::size_t i = 0; i < mine.count; ++i) output[i] = reduced<T>(parts, i);
      return;
    case Kind::reduce_scatter:
      for (std::size_t i = 0; i < mine.count; ++i) {
        output[i] = reduced<T>(parts, rank * mine.count + i);
      }
      return;
    case Kind::all_gather:
      for (std::size_t from = 0; from < parts.size(); ++from) {
        copy(parts[from], output + from * mine.count);
      }
      return;
    case Kind::broadcast:
      return copy(parts[static_cast<std::size_t>(mine.root)], output);
  }
}

// Calls function with a value of the type.
template <typename Function>
void with_type(ncclDataType_t type, const Function& function) {
  switch (type) {
    case ncclFloat64:
      return function(double{});
    case ncclFloat32:
      return function(float{});
    case ncclBfloat16:
      return function(lockstep::Bfloat16{});
    case ncclFloat16:
      return function(lockstep::Float16{});
    case ncclInt64:
      return function(std::int64_t{});
    case ncclInt32:
      return function(std::int32_t{});
    default:
      return function(std::uint8_t{});
  }
}

}  // namespace

std::size_t input_bytes(const Part& part, int rank, std::size_t num_ranks) {
  const bool gives = part.kind == Kind::broadcast ? rank == part.root : true;
  if (!gives) return 0;
  std::size_t element = 0;
  with_type(part.type, [&](auto value) { element = sizeof value; });
  return part.count * element * (part.kind == Kind::reduce_scatter ? num_ranks : 1);
}

void move_data(const std::vector<Part>& parts, std::size_t rank) {
  with_type(parts[rank].type, [&](auto value) { move<decltype(value)>(parts, rank); });
}

}  // namespace emulated_nccl
