// Texts: characters, token files, and errors in them.
#include "datasets/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>
#include <set>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep::datasets {
namespace {

using lockstep::testing::expect_error;
using lockstep::testing::TempFolder;
using ::testing::ElementsAre;

TEST(Text, CharactersAreNumberedInTheirOrder) {
  const Dataset text = characters_of(
      "b\xc3\xa4"
      "ab\xe2\x82\xac\xf0\x9f\x98\x80"
      "aaab",
      "t", 2);
  EXPECT_EQ(text.train.num_classes, 5u);
  EXPECT_THAT(text.train.tokens, ElementsAre(1, 2, 0, 1, 3, 4, 0, 0, 0));
  EXPECT_EQ(text.train.num_rows(), 4u);
  EXPECT_EQ(text.test.num_rows(), 0u);  // shorter than a window
}

TEST(Text, TheLastTenthIsForValidation) {
  const std::string text(95, 'x');
  const Dataset dataset = characters_of(text + "abcde", "t", 4);
  EXPECT_EQ(dataset.train.tokens.size(), 90u);
  EXPECT_EQ(dataset.test.tokens.size(), 10u);
  EXPECT_EQ(dataset.test.num_rows(), 2u);
}

TEST(Text, TheEmbeddedOneNeedsNoFile) {
  const Dataset dataset = load_dataset(parse_dataset("embedded-text"), "nowhere", 0, {32});
  EXPECT_EQ(kEmbeddedText.substr(0, 14), "First Citizen:");
  EXPECT_LT(kEmbeddedText.size(), 200'000u);
  EXPECT_EQ(dataset.train.num_classes,
            std::set<char>(kEmbeddedText.begin(), kEmbeddedText.end()).size());
  EXPECT_EQ(dataset.train.num_rows(), (kEmbeddedText.size() * 9 / 10 - 1) / 32);
}

TEST(Text, MistakesAreNamed) {
  for (const char* bad : {"ab\xff", "ab\xc3", "ab\xc0\x80", "ab\xed\xa0\x80", "ab\x80"}) {
    expect_error(ErrorCode::Io,
                 "'t' is not UTF-8 text: the byte at offset 2 does not begin a character",
                 [&] { characters_of(std::string(bad) + std::string(100, 'x'), "t", 4); });
  }
  expect_error(ErrorCode::Io,
               "'t' has 9 tokens to train on (and a tenth for validation); a window "
               "takes 9 and the token after it",
               [] { characters_of("0123456789", "t", 9); });
  expect_error(ErrorCode::Io, "no input.txt in 'nowhere/tinyshakespeare' or 'nowhere'; fetch it",
               [] { load_dataset(parse_dataset("tinyshakespeare"), "nowhere", 0); });
}

class TokenFile {
 public:
  void write(const std::vector<std::int32_t>& header, const std::vector<std::uint16_t>& tokens) {
    std::ofstream file(path(), std::ios::binary);
    std::vector<std::int32_t> all = header;
    if (!header.empty()) all.resize(256);
    file.write(reinterpret_cast<const char*>(all.data()), std::streamsize(4 * all.size()));
    file.write(reinterpret_cast<const char*>(tokens.data()), std::streamsize(2 * tokens.size()));
  }
  std::filesystem::path path() const { return folder_.path() / "train.bin"; }

 private:
  TempFolder folder_;
};

TEST(TokenFiles, ArePlainOrHaveTheHeaderOfLlmC) {
  const std::vector<std::uint16_t> tokens{50256, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  TokenFile file;
  for (const std::vector<std::int32_t>& header :
       {std::vector<std::int32_t>{}, std::vector<std::int32_t>{20240520, 1, 10}}) {
    file.write(header, tokens);
    const Dataset dataset =
        load_dataset(parse_dataset("tokens:" + file.path().string()), "nowhere", 0, {3});
    EXPECT_EQ(dataset.train.num_classes, kGpt2Vocabulary);
    EXPECT_THAT(dataset.train.tokens, ElementsAre(50256, 1, 2, 3, 4, 5, 6, 7, 8));
  }
}

TEST(TokenFiles, MistakesAreNamed) {
  TokenFile file;
  std::vector<std::uint16_t> tokens(20);
  tokens[7] = 50257;
  file.write({}, tokens);
  expect_error(ErrorCode::Io, "train.bin': the token at offset 7 (byte 14) is 50257, outside",
               [&] { read_tokens(file.path(), 4); });
  file.write({20240520, 1, 19}, tokens);
  expect_error(ErrorCode::Io, "version 1 with 19 tokens, and 1064 bytes; expected",
               [&] { read_tokens(file.path(), 4); });
  file.write({20240520, 1, 20}, std::vector<std::uint16_t>(20));
  expect_error(ErrorCode::Io, "has 18 tokens to train on", [&] { read_tokens(file.path(), 18); });
  std::ofstream(file.path()) << "odd";
  expect_error(ErrorCode::Io, "has 3 bytes; tokens of two bytes need an even number",
               [&] { read_tokens(file.path(), 4); });
  expect_error(ErrorCode::Io, "missing.bin", [] { read_tokens("missing.bin", 4); });
}

// The numbers in memory, each as a T.
template <typename T>
std::string bytes_of(const std::vector<int>& numbers) {
  std::string bytes;
  for (const int number : numbers) {
    const T value = static_cast<T>(number);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

std::string big_endian(std::string bytes, std::size_t width) {
  for (std::size_t i = 0; i < bytes.size(); i += width) {
    std::reverse(bytes.begin() + std::ptrdiff_t(i), bytes.begin() + std::ptrdiff_t(i + width));
  }
  return bytes;
}

class ForeignTokenFile : public ::testing::Test {
 protected:
  ForeignTokenFile() : tokens_(60) { std::iota(tokens_.begin(), tokens_.end(), 1000); }
  void expect_refused(const std::string& bytes, const std::string& words) {
    std::ofstream(path_, std::ios::binary) << bytes;
    expect_error(ErrorCode::Io, words, [&] { read_tokens(path_, 4); });
  }
  std::vector<int> tokens_;
  TempFolder folder_;
  std::filesystem::path path_ = folder_.path() / "u.bin";
};

TEST_F(ForeignTokenFile, OfAnotherWidthSaysHowToConvertIt) {
  expect_refused(bytes_of<std::uint32_t>(tokens_),
                 "u.bin' is not a file of two-byte tokens: it seems to be tokens of four bytes: "
                 "every second number is 0; convert it: python3");
  expect_refused(bytes_of<std::uint64_t>(tokens_), "tokens of eight bytes");
  expect_refused(big_endian(bytes_of<std::uint32_t>(tokens_), 4), "'>u4'");
  expect_refused(big_endian(bytes_of<std::uint16_t>(tokens_), 2), "it seems to be big-endian");
  std::vector<int> bytes(100);
  std::iota(bytes.begin(), bytes.end(), 0);
  expect_refused(bytes_of<std::uint8_t>(bytes), "it seems to be tokens of one byte");
  for (int& token : tokens_) token += token % 3 == 0 ? 100'000 : 0;
  expect_refused(bytes_of<std::uint32_t>(tokens_),
                 "nearly every second number is 0; some are outside GPT-2's vocabulary");
}

TEST_F(ForeignTokenFile, OfAKnownFormatIsNamed) {
  const std::string rest = bytes_of<std::uint16_t>(tokens_);
  using namespace std::string_literals;
  const std::vector<std::pair<std::string, std::string>> heads = {
      {"\x93NUMPY\x01\0"s, "numpy's .npy; convert it: python3"},
      {"\x1f\x8b\x08"s, "gzip; unpack it first"},
      {"PK\x03\x04"s, "a zip archive"},
      {"\x28\xb5\x2f\xfd"s, "zstd"},
      {"MMIDIDX\0\0"s, "Megatron's index; name the .bin"},
      {"PAR1"s, "Parquet"},
      {"\x08\0\0\0\0\0\0\0{\"a\""s, "weights (safetensors)"},
      {bytes_of<std::int32_t>({20240801, 7, 30}), "llm.c's files (magic number 20240801)"},
      {std::string(100, 'a') + "b", "text; use --dataset text:"}};
  for (const auto& [head, words] : heads) {
    expect_refused(head + (head.size() > 100 ? "" : rest), "it seems to be ");
    expect_refused(head + (head.size() > 100 ? "" : rest), words);
  }
}

TEST_F(ForeignTokenFile, ThatIsNoneIsRead) {
  for (const int first : {0, 1, 256, 1000, 10000, 30000, 50257 - 60}) {
    std::iota(tokens_.begin(), tokens_.end(), first);
    std::ofstream(path_, std::ios::binary) << bytes_of<std::uint16_t>(tokens_);
    EXPECT_EQ(read_tokens(path_, 4).train.tokens.front(), first);
  }
}

TEST(Text, AByteOrderMarkIsSkippedAndUtf16IsNamed) {
  using namespace std::string_literals;
  EXPECT_EQ(without_mark("\xef\xbb\xbf"
                         "abc",
                         "t"),
            "abc");
  EXPECT_EQ(without_mark("a\xef\xbb\xbf", "t"), "a\xef\xbb\xbf");
  EXPECT_EQ(without_mark("", "t"), "");
  for (const auto& [text, encoding] :
       std::vector<std::pair<std::string, std::string>>{{"\xff\xfe"
                                                         "a\0b\0"s,
                                                         "UTF-16"},
                                                        {"\xfe\xff\0a\0b"s, "UTF-16"},
                                                        {"a\0b\0"s, "UTF-16LE"},
                                                        {"\0a\0b"s, "UTF-16BE"},
                                                        {"\xff\xfe\0\0a\0\0\0"s, "UTF-32"}}) {
    expect_error(ErrorCode::Io,
                 "'t' is " + encoding + " text, and UTF-8 is needed; convert it: iconv -f " +
                     encoding + " -t UTF-8 't'",
                 [&, &text = text] { without_mark(text, "t"); });
  }
}

}  // namespace
}  // namespace lockstep::datasets
