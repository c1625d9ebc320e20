// What a fuzzer calls: any bytes, as another rank sends them after the handshake. The first byte
// says in which pieces they come, and whether the headers' checksums are mended, so that the bytes
// behind them are reached.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "engine/comm/comm_errors.h"
#include "engine/comm/transport/tcp/inbox.h"

namespace {

using namespace lockstep::comm;

void require_true(bool is_true) {
  if (!is_true) std::abort();
}

// As a receiver of a plan's messages does it, which takes each as soon as it is there.
void take_messages(Inbox& inbox) {
  while (inbox.message() != nullptr && inbox.is_complete()) {
    const auto num_bytes = static_cast<std::size_t>(inbox.message()->num_bytes);
    const std::byte* payload = inbox.hold();
    require_true(reinterpret_cast<std::uintptr_t>(payload) % kFrameHeaderBytes == 0);
    volatile std::byte last{};
    if (num_bytes > 0) last = payload[num_bytes - 1];
    (void)last;
    inbox.release();
  }
}

// FNV-1a over the words of a header but for the checksum's own, at byte 44.
void mend(std::byte* header) {
  std::uint32_t sum = 2166136261U;
  for (std::size_t at = 0; at < kFrameHeaderBytes; at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, header + at, sizeof word);
    if (at != 44) sum = (sum ^ word) * 16777619U;
  }
  std::memcpy(header + 44, &sum, sizeof sum);
}

void mend_all(std::vector<std::byte>& stream) {
  for (std::size_t at = 0; at + kFrameHeaderBytes <= stream.size();) {
    mend(stream.data() + at);
    const auto header = decode(
        std::span<const std::byte, kFrameHeaderBytes>(stream.data() + at, kFrameHeaderBytes));
    if (!header || header->num_bytes > stream.size()) return;
    at += kFrameHeaderBytes + padded_bytes(header->num_bytes);
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
  Inbox inbox([](const FrameHeader& header, std::vector<std::byte> payload) {
    require_true(payload.size() == header.num_bytes);
    if (header.kind != FrameKind::failure) return;
    (void)decode_error({reinterpret_cast<const char*>(payload.data()), payload.size()});
  });
  while (!bytes.empty()) {
    const std::span<std::byte> space = inbox.space();
    require_true(!space.empty());
    const std::size_t count = std::min({space.size(), bytes.size(), piece});
    std::memcpy(space.data(), bytes.data(), count);
    bytes = bytes.subspan(count);
    if (!inbox.received(count)) return 0;  // no frames: the connection ends
    take_messages(inbox);
  }
  return 0;
}
