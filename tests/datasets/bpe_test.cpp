// GPT-2's byte-pair encoding, by a small vocabulary.
#include "datasets/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "datasets/dataset.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_vocabulary.h"

namespace lockstep::datasets {
namespace {

using lockstep::testing::expect_error;
using lockstep::testing::TempFolder;
using lockstep::testing::TinyVocabulary;
using ::testing::ElementsAre;

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = end_of_word(text, begin, "t");
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

TEST(BytePairs, ATextIsCutIntoWordsAsGpt2Does) {
  EXPECT_THAT(words_of("I'll say: it's 42!"),
              ElementsAre("I", "'ll", " say", ":", " it", "'s", " 42", "!"));
  EXPECT_THAT(words_of("  two   spaces \n\n end  "),
              ElementsAre(" ", " two", "  ", " spaces", " \n\n", " end", "  "));
  EXPECT_THAT(words_of("a\tb\n c"), ElementsAre("a", "\t", "b", "\n", " c"));
  EXPECT_THAT(words_of("\u00e9t\u00e9 \u0663\u0664\u00bd \u4f60\u597d\u3002\u3000x \U0001f600!"),
              ElementsAre("\u00e9t\u00e9", " \u0663\u0664\u00bd", " \u4f60\u597d", "\u3002",
                          "\u3000", "x", " \U0001f600!"));
  EXPECT_THAT(words_of("don'T 'tis"), ElementsAre("don", "'", "T", " '", "tis"));
}

TEST(BytePairs, PairsAreMergedInTheirOrder) {
  const TempFolder folder;
  TinyVocabulary({"h e", "l l", "he ll", "hell o", "\u0120 hello"}).write(folder.path());
  const BytePairs pairs(folder.path());
  EXPECT_EQ(pairs.size(), 261u);
  // Behind the bytes, in the order of merges: he, ll, hell, hello, " hello".
  EXPECT_THAT(pairs.encode("hello hello", "t"), ElementsAre(259, 260));
  EXPECT_THAT(pairs.encode("hell", "t"), ElementsAre(258));
  EXPECT_THAT(pairs.encode("lllhe", "t"), ElementsAre(257, 'l', 256));
  EXPECT_THAT(pairs.encode("", "t"), ElementsAre());
}

TEST(BytePairs, EveryTextComesBack) {
  const TempFolder folder;
  TinyVocabulary({"h e", "\u00c3 \u00a9"}).write(folder.path());
  const BytePairs pairs(folder.path());
  std::string text;
  for (char32_t character = 0; character < 0x11000; character += character < 0x3000 ? 1 : 61) {
    if (character < 0xd800 || character >= 0xe000) text += utf8(character);
  }
  std::string back;
  for (const std::uint16_t token : pairs.encode(text, "t")) back += pairs.decode(token);
  EXPECT_EQ(back, text);
  EXPECT_THAT(pairs.encode("\u00e9", "t"), ElementsAre(257));
}

TEST(BytePairs, ATextIsTrainedInThem) {
  const TempFolder folder;
  TinyVocabulary({"h e"}).write(folder.path(), "vocab.json", "merges.txt");
  std::ofstream(folder / "t.txt") << "hehehehehehehehehehe";
  const Dataset dataset =
      load_dataset(parse_dataset("text:" + (folder / "t.txt").string()), "", 0, {4, folder.path()});
  EXPECT_EQ(dataset.train.num_classes, 257u);
  EXPECT_EQ(dataset.train.tokens, Tokens(9, 256));
  EXPECT_EQ(dataset.characters, "");
}

TEST(BytePairs, MistakesAreNamed) {
  const TempFolder folder;
  const auto expect_broken = [&](const std::string& words) {
    expect_error(ErrorCode::Io, words, [&] { BytePairs pairs(folder.path()); });
  };
  expect_broken("no encoder.json or vocab.json in '");
  TinyVocabulary vocabulary({"h e", "he y"});
  vocabulary.write(folder.path());
  std::ofstream(folder / "vocab.bpe") << "#version: 0.2\nh e\nh o\n";
  expect_broken("does not belong to its folder's encoder.json: line 3 merges 'h o', and 'ho' is");
  std::ofstream(folder / "vocab.bpe") << "#version: 0.2\nhey\n";
  expect_broken("vocab.bpe', line 2: expected two tokens, found 'hey'");
  std::ofstream(folder / "vocab.bpe") << "h \u20ac\n";
  expect_broken("'\u20ac' has a character that does not stand for a byte");
  vocabulary.numbers["he"] = 3;
  vocabulary.write(folder.path());
  expect_broken("expected a number from 0 to 257 that no other token has");
  vocabulary.numbers["he"] = 256;
  vocabulary.numbers["hey"] = vocabulary.numbers["a"];
  vocabulary.numbers.erase("a");
  vocabulary.write(folder.path());
  expect_broken("there is no token for the byte 97");
  std::ofstream(folder / "encoder.json") << "[1]";
  expect_broken("expected an object of at most 65535 tokens");
  const TempFolder other;
  TinyVocabulary({"h e"}).write(other.path());
  expect_error(ErrorCode::Io,
               "'t' is not UTF-8 text: the byte at offset 3 does not begin a character",
               [&] { BytePairs(other.path()).encode("abc\xff", "t"); });
}

}  // namespace
}  // namespace lockstep::datasets
