#include "engine/core/text.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace lockstep {
namespace {

TEST(ShownText, IsWhatItIsUpTo80Bytes) {
  EXPECT_EQ(shown(""), "");
  EXPECT_EQ(shown("écrit par \"nous\""), "écrit par \"nous\"");
  EXPECT_EQ(shown(std::string(80, 'a')), std::string(80, 'a'));
  EXPECT_EQ(shown(std::string(81, 'a')), std::string(80, 'a') + "...");
}

TEST(ShownText, IsNotCutWithinACharacter) {
  EXPECT_EQ(shown(std::string(79, 'a') + "éa"), std::string(79, 'a') + "...");
  EXPECT_EQ(shown(std::string(200, '\x80')).size(), 80u) << "that is no UTF-8: 77 bytes and dots";
}

TEST(ShownText, HoldsNoControlCharacters) {
  EXPECT_EQ(shown(std::string_view("a\nb\x1b[2J\0\x7f", 9)), "a?b?[2J??");
}

TEST(DidYouMean, NamesTheNearestWordIfOneIsNear) {
  const std::array<std::string, 5> plans = {"auto", "ring", "tree", "one-shot", "two-shot"};
  EXPECT_EQ(did_you_mean("rign", plans), "; did you mean 'ring'?");
  EXPECT_EQ(did_you_mean("two-sht", plans), "; did you mean 'two-shot'?");
  for (const char* word : {"butterfly", "", "x"}) EXPECT_EQ(did_you_mean(word, plans), "");
}

}  // namespace
}  // namespace lockstep
