#include "engine/comm/store/token_handshake.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <span>
#include <string>

#include "engine/comm/store/sha256.h"

namespace lockstep::comm {
namespace {

const std::string kSecret = "a token of this test";

TEST(Sha256, GivesThePublishedDigests) {
  const auto hex = [](const Digest& digest) {
    std::string text;
    for (const std::byte byte : digest) text += fmt::format("{:02x}", std::to_integer<int>(byte));
    return text;
  };
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  EXPECT_EQ(hex(sha256(bytes("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256(bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(hmac_sha256("Jefe", bytes("what do ya want for nothing?"))),  // RFC 4231
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(TokenHandshake, NeedsTheSameTokenAndPurposeAtBothEnds) {
  const ClientHandshake client(kSecret, "store");
  ServerHandshake same(kSecret, "store");
  ServerHandshake other_token("A token of this test", "store");
  ServerHandshake other_purpose(kSecret, "tcp");
  EXPECT_FALSE(other_token.answer(client.hello()));
  EXPECT_FALSE(other_purpose.answer(client.hello()));
  const auto answer = same.answer(client.hello());
  ASSERT_TRUE(answer);
  auto proof = client.proof(*answer);
  ASSERT_TRUE(proof);
  EXPECT_TRUE(same.is_proven(*proof));
  (*proof)[31] ^= std::byte{1};
  EXPECT_FALSE(same.is_proven(*proof));
}

TEST(TokenHandshake, ARecordedHandshakeOpensNoOtherConnection) {
  const ClientHandshake client(kSecret, "store");
  ServerHandshake first(kSecret, "store");
  const auto proof = client.proof(*first.answer(client.hello()));
  ServerHandshake second(kSecret, "store");
  const auto answer = second.answer(client.hello());  // replayed
  ASSERT_TRUE(answer);
  EXPECT_FALSE(second.is_proven(*proof));
  EXPECT_FALSE(ClientHandshake(kSecret, "store").proof(*answer)) << "an answer is for one client";
}

}  // namespace
}  // namespace lockstep::comm
