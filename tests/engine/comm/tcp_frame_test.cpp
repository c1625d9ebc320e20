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
  header.call.operation = Operation::all_reduce;
  header.call.dtype = DType::float64;
  header.call.op = ReduceOp::max;
  header.call.plan = plan::AllReducePlan::ring;
  header.call.root = -1;
  header.call.sequence = sequence;
  header.call.num_elements = num_bytes / 8;
  return header;
}

// The payload of frame i is the byte i, so that mixed up frames show.
void append_frame(Stream& stream, const FrameHeader& header, std::size_t i) {
  const HeaderBytes bytes = encode(header);
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

TEST(Frame, AHeaderComesBackAsItWas) {
  const FrameHeader header = header_of(FrameKind::data, 8 * 1234);
  const auto decoded = decode(encode(header));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->kind, FrameKind::data);
  EXPECT_EQ(decoded->num_bytes, header.num_bytes);
  EXPECT_TRUE(same_call(decoded->call, header.call));
}

TEST(Frame, AnyChangedByteIsNoHeader) {
  const HeaderBytes bytes = encode(header_of(FrameKind::data, 800));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      HeaderBytes changed = bytes;
      changed[i] ^= static_cast<std::byte>(1 << bit);
      EXPECT_FALSE(decode(changed)) << "byte " << i << " bit " << bit;
    }
  }
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
      EXPECT_TRUE(same_call(frame.header.call, sent[num_frames].call));
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
  const HeaderBytes header = encode(header_of(FrameKind::message, kMaxPayloadBytes));
  EXPECT_TRUE(feed(reader, header, rng, expect_no_frame));
  EXPECT_LE(reader.space().size(), 8U << 20);
  EXPECT_FALSE(decode(encode(header_of(FrameKind::message, kMaxPayloadBytes + 1))));
}

// What the kernel does not take at once is sent later, from a copy where the caller needs its
// memory back.
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

// For these a receiver takes memory at once.
TEST(Frame, AMessageLargerThanAnyIsNoHeader) {
  EXPECT_TRUE(decode(encode(header_of(FrameKind::data, kMaxMessageBytes))));
  EXPECT_FALSE(decode(encode(header_of(FrameKind::data, kMaxMessageBytes + 1))));
}

TEST(Frame, ADtypeOrPlanThatDoesNotExistIsNoHeader) {
  FrameHeader header = header_of(FrameKind::announce, 0);
  header.call.dtype = static_cast<DType>(7);
  EXPECT_FALSE(decode(encode(header)));
  header = header_of(FrameKind::announce, 0);
  header.call.plan = static_cast<plan::AllReducePlan>(8);
  EXPECT_FALSE(decode(encode(header)));
}

}  // namespace
}  // namespace lockstep::comm
