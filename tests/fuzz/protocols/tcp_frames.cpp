// The fuzzer's entry point takes any bytes as those that another rank sends after its hello. The
// first byte says in which pieces they come, and whether the headers are mended, so that the bytes
// behind them are reached.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "engine/comm/comm_errors.h"
#include "engine/comm/transport/tcp/frame.h"

namespace {

using namespace lockstep::comm;

void require_true(bool is_true) {
  if (!is_true) std::abort();
}

constexpr std::size_t kHeaderBytes = sizeof(FrameHeader);

// Makes headers valid, and payloads no longer than the stream.
void mend_all(std::vector<std::byte>& stream) {
  for (std::size_t at = 0; at + kHeaderBytes <= stream.size();) {
    FrameHeader header;
    std::memcpy(&header, stream.data() + at, kHeaderBytes);
    header.magic = FrameHeader::kMagic;
    header.num_bytes %= stream.size();
    std::memcpy(stream.data() + at, &header, kHeaderBytes);
    at += kHeaderBytes + static_cast<std::size_t>(header.num_bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t num_bytes) {
  if (num_bytes == 0) return 0;
  const auto* first = reinterpret_cast<const std::byte*>(input);
  std::vector<std::byte> stream(first + 1, first + num_bytes);
  const std::size_t piece = 1 + std::size_t{input[0] & 127U} * 7;
  if ((input[0] & 128U) != 0) mend_all(stream);
  std::span<const std::byte> bytes = stream;
  FrameReader reader;
  const auto handle = [&](Frame frame) {
    const auto payload = frame.payload();
    require_true(reinterpret_cast<std::uintptr_t>(payload.data()) % kCacheLine == 0);
    if (frame.header.kind == FrameKind::failure) {
      (void)decode_error({reinterpret_cast<const char*>(payload.data()), payload.size()});
    }
    reader.recycle(std::move(frame));
  };
  while (!bytes.empty()) {
    const std::span<std::byte> space = reader.space();
    require_true(!space.empty());
    const std::size_t count = std::min({space.size(), bytes.size(), piece});
    std::memcpy(space.data(), bytes.data(), count);
    bytes = bytes.subspan(count);
    if (!reader.received(count, handle)) return 0;  // no frames: the connection ends
  }
  return 0;
}
