// What NCCL's kernels do with the data.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/emulated_gpu/nccl/clique.h"

namespace emulated_nccl {
namespace {

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

// What values are combined in.
template <typename T>
using Wide = std::conditional_t<kIsHalf<T>, float, T>;

template <typename T>
Wide<T> combine(ncclRedOp_t op, Wide<T> a, Wide<T> b) {
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
T reduced(const std::vector<const Part*>& parts, std::size_t i) {
  const ncclRedOp_t op = parts[0]->op;
  Wide<T> total{};
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    auto value = static_cast<Wide<T>>(static_cast<const T*>(parts[rank]->input)[i]);
    if (op == ncclAvg) value /= static_cast<Wide<T>>(parts.size());
    total = rank == 0 ? value : combine<T>(op, total, value);
  }
  return static_cast<T>(total);
}

template <typename T>
void move(const std::vector<const Part*>& parts) {
  const Part& first = *parts[0];
  const auto copy = [&](const void* from, void* to) {
    if (from != to) std::memmove(to, from, first.count * sizeof(T));
  };
  switch (first.kind) {
    case Kind::all_reduce:
      for (std::size_t i = 0; i < first.count; ++i) {
        const T value = reduced<T>(parts, i);
        for (const Part* part : parts) static_cast<T*>(part->output)[i] = value;
      }
      return;
    case Kind::reduce_scatter:
      for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        for (std::size_t i = 0; i < first.count; ++i) {
          static_cast<T*>(parts[rank]->output)[i] = reduced<T>(parts, rank * first.count + i);
        }
      }
      return;
    case Kind::all_gather:
      for (std::size_t from = 0; from < parts.size(); ++from) {
        for (const Part* part : parts) {
          copy(parts[from]->input, static_cast<T*>(part->output) + from * first.count);
        }
      }
      return;
    case Kind::broadcast:
      for (const Part* part : parts) {
        copy(parts[static_cast<std::size_t>(first.root)]->input, part->output);
      }
      return;
    case Kind::message:
      return copy(parts[0]->input, parts[1]->output);
  }
}

}  // namespace

void move_data(const std::vector<const Part*>& parts) {
  switch (parts[0]->type) {
    case ncclFloat64:
      return move<double>(parts);
    case ncclFloat32:
      return move<float>(parts);
    case ncclBfloat16:
      return move<__nv_bfloat16>(parts);
    case ncclFloat16:
      return move<__half>(parts);
    case ncclInt64:
      return move<std::int64_t>(parts);
    case ncclInt32:
      return move<std::int32_t>(parts);
    default:
      return move<std::uint8_t>(parts);
  }
}

}  // namespace emulated_nccl
