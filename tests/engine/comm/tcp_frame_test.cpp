#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "engine/comm/transport/tcp/greeting.h"
#include "engine/comm/transport/tcp/inbox.h"
#include "engine/core/rng.h"

namespace lockstep::comm {
namespace {

using Stream = std::vector<std::byte>;

constexpr const char* kToken = "a token of this test";

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
void append_frame(Stream& stream, const FrameHeader& header, std::byte value) {
  const HeaderBytes bytes = encode(header);
  stream.insert(stream.end(), bytes.begin(), bytes.end());
  stream.insert(stream.end(), static_cast<std::size_t>(header.num_bytes), value);
  stream.resize(stream.size() + padded_bytes(header.num_bytes) -
                static_cast<std::size_t>(header.num_bytes));
}

bool is_filled_with(std::span<const std::byte> payload, std::size_t value) {
  return std::ranges::all_of(payload,
                             [&](std::byte byte) { return byte == static_cast<std::byte>(value); });
}

// Gives the inbox some bytes, as a socket does. False when it wants no more.
bool feed(Inbox& inbox, std::span<const std::byte> bytes, Rng& rng) {
  while (!bytes.empty()) {
    const std::span<std::byte> space = inbox.space();
    const std::size_t count = std::min({bytes.size(), space.size(), 1 + random_below(rng, 9000)});
    std::memcpy(space.data(), bytes.data(), count);
    bytes = bytes.subspan(count);
    if (!inbox.received(count)) return false;
  }
  return true;
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

TEST(Inbox, AnyMixtureOfFramesInAnyPiecesComesOutInOrder) {
  for (int seed = 0; seed < 200; ++seed) {
    Rng rng(static_cast<std::uint64_t>(seed));
    Stream stream;
    std::vector<std::size_t> messages;  // sizes
    std::size_t num_others = 0;
    for (std::uint8_t i = 0; i < 40; ++i) {
      const std::size_t sizes[] = {0, 1, 63, 64, 65, 1000, 20'000};
      const std::size_t size = sizes[random_below(rng, 7)];
      if (rng.uniform() < 0.6) {
        append_frame(stream, header_of(FrameKind::data, size),
                     static_cast<std::byte>(messages.size()));
        messages.push_back(size);
      } else {
        const bool is_letter = rng.uniform() < 0.5;
        append_frame(
            stream,
            header_of(is_letter ? FrameKind::letter : FrameKind::announce, is_letter ? size : 0),
            static_cast<std::byte>(num_others));
        ++num_others;
      }
    }
    std::size_t num_handled = 0;
    Inbox inbox([&](const FrameHeader& header, const std::vector<std::byte>& payload) {
      EXPECT_EQ(payload.size(), header.num_bytes);
      EXPECT_TRUE(is_filled_with(payload, num_handled));
      ++num_handled;
    });
    std::size_t num_taken = 0;
    bool is_held = false;
    const auto check_held = [&](const std::byte* data) {
      const std::span<const std::byte> payload(data, messages[num_taken]);
      EXPECT_TRUE(is_filled_with(payload, num_taken));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0U);
    };
    const std::byte* held = nullptr;
    for (std::size_t begin = 0; begin < stream.size();) {
      const std::size_t count = std::min(stream.size() - begin, random_below(rng, 30'000));
      ASSERT_TRUE(feed(inbox, std::span(stream).subspan(begin, count), rng));
      begin += count;
      if (is_held && rng.uniform() < 0.7) {
        check_held(held);  // still where it was, although more has come
        inbox.release();
        ++num_taken;
        is_held = false;
      }
      while (!is_held && inbox.is_complete()) {
        ASSERT_EQ(inbox.message()->num_bytes, messages[num_taken]);
        held = inbox.hold();
        is_held = rng.uniform() < 0.3;
        if (is_held) break;
        check_held(held);
        inbox.release();
        ++num_taken;
      }
    }
    if (is_held) {
      check_held(held);
      inbox.release();
      ++num_taken;
    }
    for (; inbox.is_complete(); ++num_taken) {
      check_held(inbox.hold());
      inbox.release();
    }
    EXPECT_EQ(num_taken, messages.size());
    EXPECT_EQ(num_handled, num_others);
  }
}

TEST(Inbox, AMessageTakenBeforeItsPaddingHasComeLeavesTheNextOneAligned) {
  Rng rng(3);
  Inbox inbox([](const FrameHeader&, const std::vector<std::byte>&) { FAIL(); });
  for (std::size_t i = 0; i < 1000; ++i) {
    Stream stream;
    append_frame(stream, header_of(FrameKind::data, 100), static_cast<std::byte>(i));
    const auto [message, padding] = std::pair(std::span(stream).first(kFrameHeaderBytes + 100),
                                              std::span(stream).subspan(kFrameHeaderBytes + 100));
    ASSERT_TRUE(feed(inbox, message, rng));
    ASSERT_TRUE(inbox.is_complete());
    const std::byte* const data = inbox.hold();
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0U) << "message " << i;
    ASSERT_TRUE(is_filled_with({data, 100}, i));
    inbox.release();
    ASSERT_TRUE(feed(inbox, padding, rng));
  }
}

TEST(Inbox, RandomBytesAreNoFrames) {
  Rng rng(2);
  for (int round = 0; round < 200; ++round) {
    Inbox inbox([](const FrameHeader&, const std::vector<std::byte>&) { FAIL(); });
    Stream stream;
    while (stream.size() < 256) stream.push_back(static_cast<std::byte>(random_below(rng, 256)));
    EXPECT_FALSE(feed(inbox, stream, rng));
  }
}

TEST(Inbox, AHugePayloadThatNeverComesTakesNoMemory) {
  Rng rng(2);
  Inbox inbox([](const FrameHeader&, const std::vector<std::byte>&) { FAIL(); });
  const HeaderBytes header = encode(header_of(FrameKind::letter, kMaxPayloadBytes));
  EXPECT_TRUE(feed(inbox, header, rng));
  EXPECT_LE(inbox.space().size(), 8U << 20);
  EXPECT_FALSE(decode(encode(header_of(FrameKind::letter, kMaxPayloadBytes + 1))));
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

// Lets two greetings talk until both have nothing more to say.
void converse(Greeting& a, Greeting& b) {
  for (int turn = 0; turn < 4; ++turn) {
    for (auto [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
      Stream bytes = from->take_output();
      while (!bytes.empty() && to->num_bytes_wanted() > 0) {
        const std::size_t count = std::min(bytes.size(), to->num_bytes_wanted());
        to->receive(std::span(bytes).first(count));
        bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
      }
    }
  }
}

TEST(Greeting, TellsBothEndsWhoTheOtherIs) {
  Greeting higher({kToken, "0", 3, 4}, Greeting::Side::connects);
  Greeting lower({kToken, "0", 1, 4}, Greeting::Side::accepts);
  converse(higher, lower);
  EXPECT_EQ(higher.peer(), 1);
  EXPECT_EQ(lower.peer(), 3);
}

TEST(Greeting, RefusesAnotherTokenGroupOrWorldSize) {
  const Identity lower{kToken, "0", 1, 4};
  for (const Identity& other :
       {Identity{"A token of this test", "0", 3, 4}, Identity{kToken, "1", 3, 4},
        Identity{kToken, "0", 3, 5}, Identity{kToken, "0", 4, 4}}) {
    Greeting connecting(other, Greeting::Side::connects);
    Greeting accepting(lower, Greeting::Side::accepts);
    converse(connecting, accepting);
    EXPECT_TRUE(accepting.has_failed());
    EXPECT_FALSE(accepting.peer());
    EXPECT_FALSE(connecting.peer());
  }
}

}  // namespace
}  // namespace lockstep::comm
