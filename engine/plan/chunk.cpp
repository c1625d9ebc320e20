#include "engine/plan/chunk.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::plan {
namespace {

std::size_t even_offset(std::size_t num_elements, std::size_t num_chunks, std::size_t index) {
  return index * (num_elements / num_chunks) + std::min(index, num_elements % num_chunks);
}

}  // namespace

Chunk even_chunk(std::size_t num_elements, std::size_t num_chunks, std::size_t index) {
  return even_chunks(num_elements, num_chunks, index, index + 1);
}

Chunk even_chunks(std::size_t num_elements, std::size_t num_chunks, std::size_t first,
                  std::size_t last) {
  const std::size_t begin = even_offset(num_elements, num_chunks, first);
  return {begin, even_offset(num_elements, num_chunks, last) - begin};
}

std::string to_string(Chunk chunk) {
  return fmt::format("[{}, {})", chunk.offset, chunk.end());
}

}  // namespace lockstep::plan
