#include "engine/comm/transport/shm/streaming_copy.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace lockstep::comm::shm {
namespace {

constexpr std::size_t kLine = 64;
// Less than this is as fast through the caches.
constexpr std::size_t kFewBytes = 1024;

#if defined(__SSE2__)
// Returns the bytes copied: all whole lines.
std::size_t stream_lines(std::byte* to, std::span<const std::byte> data) {
  const std::size_t num_bytes = data.size() / kLine * kLine;
  for (std::size_t line = 0; line < num_bytes; line += kLine) {
    const auto* from = reinterpret_cast<const __m128i*>(data.data() + line);
    auto* out = reinterpret_cast<__m128i*>(to + line);
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  _mm_sfence();  // such stores are not ordered with later ones by themselves
  return num_bytes;
}
#else
std::size_t stream_lines(std::byte*, std::span<const std::byte>) {
  return 0;
}
#endif

}  // namespace

void streaming_copy(std::byte* to, std::span<const std::byte> data) {
  const std::size_t done = data.size() < kFewBytes ? 0 : stream_lines(to, data);
  if (done < data.size()) std::memcpy(to + done, data.data() + done, data.size() - done);
}

}  // namespace lockstep::comm::shm
