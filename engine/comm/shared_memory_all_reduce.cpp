#include "engine/comm/shared_memory_all_reduce.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace lockstep::comm {
namespace {

// Bytes summed before they are written to the others.
constexpr std::size_t kPieceBytes = 16 * 1024;

}  // namespace

void shared_memory_all_reduce(const Reduction& reduction, double factor, int rank,
                              std::span<void* const> buffers, DType dtype,
                              std::size_t num_elements) {
  const std::size_t element_size = size_of(dtype);
  const auto mine = static_cast<std::size_t>(rank);
  const plan::Chunk chunk = plan::even_chunk(num_elements, buffers.size(), mine);
  const std::size_t piece_elements = kPieceBytes / element_size;
  thread_local std::vector<ConstTensorView> sources;
  sources.resize(buffers.size());
  for (std::size_t begin = chunk.offset; begin < chunk.end(); begin += piece_elements) {
    const std::size_t count = std::min(piece_elements, chunk.end() - begin);
    const auto piece_of = [&](std::size_t r) {
      return TensorView{static_cast<std::byte*>(buffers[r]) + begin * element_size, dtype, count};
    };
    for (std::size_t r = 0; r < buffers.size(); ++r) sources[r] = piece_of(r);
    const TensorView sum = piece_of(mine);
    reduce_in_order(reduction.stream, reduction.op, factor, sources, sum);
    for (std::size_t r = 0; r < buffers.size(); ++r) {
      if (r != mine) std::memcpy(piece_of(r).data, sum.data, sum.num_bytes());
    }
  }
}

std::size_t elements_sent_in_shared_memory(int rank, int world_size, std::size_t num_elements) {
  const auto n = static_cast<std::size_t>(world_size);
  const std::size_t own = plan::even_chunk(num_elements, n, static_cast<std::size_t>(rank)).count;
  return (num_elements - own) + (n - 1) * own;
}

}  // namespace lockstep::comm
