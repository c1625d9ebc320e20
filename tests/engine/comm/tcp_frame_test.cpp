#include <gmock/gmock.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/comm/transport/tcp/frame.h"
#include "engine/core/rng.h"

namespace lockstep::comm {
namespace {

using Stream = std::vector<std::byte>;

std::size_t random_below(Rng& rng, std::size_t end) {
  return std::min(static_cast<std::size_t>(rng.uniform() * static_cast<double>(end)), end - 1);
}

FrameHeader header_of(FrameKind kind, std::size_t num_bytes, std::uint64_t sequence = 7) {
  FrameHeader header;
  header.kind = kind;
  header.num_bytes = num_bytes;
  CallHeader call;
  call.operation = Operation::all_reduce;
  call.dtype = DType::float64;
  call.op = ReduceOp::max;
  call.plan = plan::AllReducePlan::ring;
  call.root = -1;
  call.sequence = sequence;
  call.num_elements = num_bytes / 8;
  header.call = pack(call);
  return header;
}

// The payload of frame i is the byte i, so that mixed up frames show.
void append_frame(Stream& stream, const FrameHeader& header, std::size_t i) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  stream.insert(stream.end(), bytes.begin(), bytes.end());
  stream.insert(stream.end(), static_cast<std::size_t>(header.num_bytes),
                static_cast<std::byte>(i));
}

// Gives the reader some bytes, as a socket does. False when it wants no more.
bool feed(FrameReader& reader, std::span<const std::byte> bytes, Rng& rng,
          const FrameReader::Handler& handler) {
  while (!bytes.empty()) {
    const std::span<std::byte> space = reader.space();
    const std::size_t count = std::min({bytes.size(), space.size(), 1 + random_below(rng, 9000)});
    std::memcpy(space.data(), bytes.data(), count);
    bytes = bytes.subspan(count);
    if (!reader.received(count, handler)) return false;
  }
  return true;
}

void expect_no_frame(Frame) {
  ADD_FAILURE() << "a frame came out";
}

TEST(PackedCall, ComesBackAsItWas) {
  CallHeader call;
  call.operation = Operation::broadcast;
  call.dtype = DType::uint8;
  call.device = DeviceType::cuda;
  call.op = ReduceOp::max;
  call.plan = plan::AllReducePlan::hierarchical;
  call.root = 3;
  call.sequence = 7;
  call.num_elements = std::uint64_t{1} << 40;
  EXPECT_TRUE(same_call(unpack(pack(call)), call));
  call.root = -1;
  EXPECT_EQ(unpack(pack(call)).root, -1);
}

TEST(FrameReader, AnyFramesInAnyPiecesComeOutInOrder) {
  for (int seed = 0; seed < 200; ++seed) {
    Rng rng(static_cast<std::uint64_t>(seed));
    Stream stream;
    std::vector<FrameHeader> sent;
    for (std::size_t i = 0; i < 40; ++i) {
      const std::size_t sizes[] = {0, 1, 63, 64, 65, 1000, 20'000};
      const bool is_data = rng.uniform() < 0.6;
      sent.push_back(header_of(is_data ? FrameKind::data : FrameKind::message,
                               sizes[random_below(rng, 7)], i));
      append_frame(stream, sent.back(), i);
    }
    std::size_t num_frames = 0;
    FrameReader reader;
    const bool is_right = feed(reader, stream, rng, [&](Frame frame) {
      ASSERT_LT(num_frames, sent.size());
      EXPECT_EQ(frame.header.call, sent[num_frames].call);
      EXPECT_EQ(frame.header.kind, sent[num_frames].kind);
      const auto payload = frame.payload();
      EXPECT_EQ(payload.size(), sent[num_frames].num_bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(payload.data()) % 64, 0U);
      EXPECT_EQ(std::ranges::count(payload, static_cast<std::byte>(num_frames)),
                static_cast<std::ptrdiff_t>(payload.size()));
      ++num_frames;
      if (rng.uniform() < 0.5) reader.recycle(std::move(frame));
    });
    EXPECT_TRUE(is_right);
    EXPECT_EQ(num_frames, sent.size());
  }
}

TEST(FrameReader, RandomBytesAreNoFrames) {
  Rng rng(2);
  for (int round = 0; round < 200; ++round) {
    FrameReader reader;
    Stream stream;
    while (stream.size() < 256) stream.push_back(static_cast<std::byte>(random_below(rng, 256)));
    EXPECT_FALSE(feed(reader, stream, rng, expect_no_frame));
  }
}

TEST(FrameReader, AHugePayloadThatNeverComesTakesNoMemory) {
  Rng rng(2);
  FrameReader reader;
  FrameHeader header = header_of(FrameKind::message, FrameHeader::kMaxBytes);
  EXPECT_TRUE(feed(reader, std::as_bytes(std::span(&header, 1)), rng, expect_no_frame));
  EXPECT_LE(reader.space().size(), 8U << 20);
  ++header.num_bytes;
  EXPECT_FALSE(header.is_valid());
}

// Bytes that the kernel does not take at once are sent later, from a copy where the caller needs
// its memory back.
TEST(FrameWriter, KeepsTheOrderAndWhatItHasNotSent) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  const Socket from(ends[0]);
  const Socket to(ends[1]);
  FrameWriter writer;
  constexpr std::size_t kLarge = 5'000'000;
  Stream data(kLarge, std::byte{1});
  EXPECT_EQ(writer.add(header_of(FrameKind::message, kLarge), data), 1U);
  EXPECT_EQ(writer.add(header_of(FrameKind::announce, 0), {}), 2U);
  writer.flush(from);
  EXPECT_EQ(writer.num_sent(), 0U);
  writer.keep_unsent();
  std::ranges::fill(data, std::byte{2});
  FrameReader reader;
  std::size_t num_frames = 0;
  while (num_frames < 2) {
    writer.flush(from);
    std::size_t count = 0;
    ASSERT_EQ(receive_some(to, reader.space(), count), IoResult::done);
    ASSERT_TRUE(reader.received(count, [&](const Frame& frame) {
      const auto payload = frame.payload();
      EXPECT_EQ(payload.size(), num_frames == 0 ? kLarge : 0);
      EXPECT_EQ(std::ranges::count(payload, std::byte{1}),
                static_cast<std::ptrdiff_t>(payload.size()));
      ++num_frames;
    }));
  }
  EXPECT_FALSE(writer.has_unsent());
  EXPECT_EQ(writer.num_sent(), 2U);
}

TEST(FrameWriter, CountsEverythingAsSentWhenTheConnectionIsOver) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  const Socket from(ends[0]);
  Socket(ends[1]).close();
  FrameWriter writer;
  const Stream data(100);
  writer.add(header_of(FrameKind::data, 100), data);
  writer.flush(from);
  EXPECT_EQ(writer.num_sent(), 1U);
  EXPECT_EQ(writer.add(header_of(FrameKind::data, 100), data), 2U);
  EXPECT_EQ(writer.num_sent(), 2U);
}

}  // namespace
}  // namespace lockstep::comm
