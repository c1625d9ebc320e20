// A chunk: the range of a buffer that one transfer of a collective moves, counted in elements.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::plan {

struct Chunk {
  std::size_t offset = 0;
  std::size_t count = 0;

  std::size_t end() const { return offset + count; }
  bool operator==(const Chunk&) const = default;
};

// Whether some element belongs to both. An empty chunk overlaps nothing.
inline bool overlaps(Chunk a, Chunk b) {
  return a.count > 0 && b.count > 0 && a.offset < b.end() && b.offset < a.end();
}

// Number `index` of the num_chunks consecutive chunks that cover num_elements as evenly as
// possible: the first num_elements % num_chunks chunks have one element more than the others.
// 10 elements in 4 chunks: 3, 3, 2, 2. REQUIRES: index < num_chunks.
Chunk even_chunk(std::size_t num_elements, std::size_t num_chunks, std::size_t index);

// The even chunks first ... last - 1 as one range. REQUIRES: first <= last <= num_chunks.
Chunk even_chunks(std::size_t num_elements, std::size_t num_chunks, std::size_t first,
                  std::size_t last);

// "[48, 64)": the first element and the one behind the last.
std::string to_string(Chunk chunk);

}  // namespace lockstep::plan
