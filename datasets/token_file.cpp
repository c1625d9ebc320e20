// Files of two-byte tokens, and what else people take for one.
#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "datasets/text.h"
#include "datasets/tokenizer.h"
#include "engine/core/error.h"
#include "engine/core/files.h"

namespace lockstep::datasets {
namespace {

using namespace std::string_view_literals;
using Bytes = std::span<const unsigned char>;

constexpr std::string_view kTokensOperation = "text";
constexpr std::size_t kLlmCHeaderBytes = 1024;  // 256 integers: magic, version, number of tokens
constexpr std::int32_t kLlmCMagic = 20240520;
constexpr std::string_view kUnpack = "unpack it first";
constexpr std::string_view kTokenize =
    "write its tokens with numpy: np.array(tokens).astype('<u2').tofile('tokens.bin')";

struct Format {
  std::string_view head;
  std::string_view name;
  std::string_view advice;
};

constexpr std::array kFormats = {
    Format{"\x1f\x8b\x08"sv, "gzip", kUnpack},
    Format{"PK\x03\x04"sv, "a zip archive, such as .npz or torch.save's", kUnpack},
    Format{"\x28\xb5\x2f\xfd"sv, "zstd", kUnpack},
    Format{"BZh"sv, "bzip2", kUnpack},
    Format{"\xfd"
           "7zXZ\0"sv,
           "xz", kUnpack},
    Format{"\x04\x22\x4d\x18"sv, "lz4", kUnpack},
    Format{"MMIDIDX\0\0"sv, "Megatron's index", "name the .bin file beside it"},
    Format{"TNTIDX\0\0"sv, "fairseq's index", "name the .bin file beside it"},
    Format{"LITPKDS"sv, "litgpt's packed data", kTokenize},
    Format{"PAR1"sv, "Parquet", kTokenize},
    Format{"ARROW1"sv, "Arrow", kTokenize},
    Format{"\xff\xff\xff\xff"sv, "an Arrow stream", kTokenize},
    Format{"\x89HDF\r\n\x1a\n"sv, "HDF5", kTokenize},
    Format{"\x80\x02\x8a\nl\xfc"sv, "a file of torch.save", kTokenize},
    Format{"\x80\x04\x95"sv, "a Python pickle", kTokenize},
    Format{"\x80\x05\x95"sv, "a Python pickle", kTokenize},
    Format{"GGUF"sv, "a model's weights (GGUF)", "name a file of tokens"},
    Format{"SQLite format 3\0"sv, "a SQLite database", kTokenize},
};

[[noreturn]] void refuse(const InputFile& file, std::string_view format, std::string_view advice) {
  fail(ErrorCode::Io, kTokensOperation,
       "'{}' is not a file of two-byte tokens: it seems to be {}; {}", file.name(), format, advice);
}

std::string python(std::string_view expression) {
  return fmt::format("convert it: python3 -c \"import numpy as np; {}.tofile('tokens.bin')\"",
                     expression);
}

void refuse_other_formats(const InputFile& file, Bytes bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\x93NUMPY")) {
    refuse(file, "numpy's .npy", python(fmt::format("np.load('{}').astype('<u2')", file.name())));
  }
  for (const Format& format : kFormats) {
    if (text.starts_with(format.head)) refuse(file, format.name, format.advice);
  }
  std::uint64_t header = 0;
  if (bytes.size() > sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
  if (header > 0 && header < bytes.size() && bytes[sizeof(header)] == '{') {
    refuse(file, "weights (safetensors)", "name a file of tokens");
  }
}

// llm.c's magic numbers are dates; that of its two-byte tokens was looked for before.
void refuse_other_llm_c(const InputFile& file, std::int32_t magic) {
  if (magic < 20240101 || magic > 20291231 || magic == kLlmCMagic) return;
  refuse(file, fmt::format("another of llm.c's files (magic number {})", magic),
         "write the text with its dev/data scripts for GPT-2 (-m gpt-2)");
}

// Natural tokens are spread over the vocabulary, so their bytes are neither all printable nor all
// small. Few different bytes may be a narrow range of tokens, unless all are small letters.
void refuse_bytes(const InputFile& file, Bytes bytes) {
  constexpr std::size_t kFewestBytes = 32;
  constexpr std::size_t kFewHighBytes = 8;
  if (bytes.size() < kFewestBytes) return;
  std::bitset<256> high;
  for (std::size_t i = 1; i < bytes.size(); i += 2) high.set(bytes[i]);
  const bool has_many = high.count() >= kFewHighBytes;
  const auto is_printable = [&](unsigned char c) {
    const bool is_space = c == ' ' || (c >= '\t' && c <= '\r');
    return is_space || (c >= 'a' && c <= 'z') || (has_many && c > ' ');
  };
  if (std::ranges::all_of(bytes, is_printable)) {
    refuse(file, "text", fmt::format("use --dataset text:{}", file.name()));
  }
  const auto is_small = [](unsigned char c) { return c < 128; };
  if (has_many && std::ranges::all_of(bytes, is_small)) {
    refuse(file, "tokens of one byte",
           python(fmt::format("np.fromfile('{}', 'u1').astype('<u2')", file.name())));
  }
}

// True if tokens[first], tokens[first + 2], ... are the high halves of wider numbers: most are 0,
// and they count as far as the largest vocabularies. `other`: where the low halves begin.
bool are_high_halves(const Tokens& tokens, std::size_t first, std::size_t other) {
  constexpr std::uint16_t kLargest = 3;  // 262143 tokens
  std::size_t num_zeros = 0;
  std::size_t num_large = 0;
  for (std::size_t i = 0; i + 1 < tokens.size(); i += 2) {
    if (tokens[i + first] > kLargest) return false;
    num_zeros += tokens[i + first] == 0;
    num_large += tokens[i + other] > kLargest;
  }
  // 8-byte numbers have a 0 in every second place of the low halves, too.
  return 4 * num_zeros >= tokens.size() && 5 * num_large >= tokens.size();
}

std::uint16_t swapped(std::uint16_t token) {
  return static_cast<std::uint16_t>(token << 8 | token >> 8);
}

void refuse_wide_tokens(const InputFile& file, const Tokens& tokens) {
  constexpr std::size_t kFewestTokens = 8;
  if (tokens.size() < kFewestTokens) return;
  const bool is_little = are_high_halves(tokens, 1, 0);
  if (!is_little && !are_high_halves(tokens, 0, 1)) return;
  bool has_eight = tokens.size() % 4 == 0;
  for (std::size_t i = is_little ? 2 : 1; i < tokens.size() && has_eight; i += 4) {
    has_eight = tokens[i] == 0;
  }
  const std::string type =
      fmt::format("{}{}{}", is_little ? '<' : '>', has_eight ? 'i' : 'u', has_eight ? 8 : 4);
  std::size_t num_high = 0;
  std::uint16_t largest = 0;
  for (std::size_t i = 0; i + 1 < tokens.size(); i += 2) {
    num_high += tokens[i + (is_little ? 1 : 0)] != 0;
    largest = std::max(largest, is_little ? tokens[i] : swapped(tokens[i + 1]));
  }
  refuse(
      file,
      fmt::format("tokens of {} bytes{}: {} second number is 0", has_eight ? "eight" : "four",
                  is_little ? "" : ", big-endian", num_high == 0 ? "every" : "nearly every"),
      num_high == 0 && largest < kGpt2Vocabulary
          ? python(fmt::format("np.fromfile('{}', '{}').astype('<u2')", file.name(), type))
          : fmt::format("some are outside GPT-2's vocabulary of {}, so cut the text into GPT-2's "
                        "tokens instead",
                        kGpt2Vocabulary));
}

void require_gpt2_tokens(const InputFile& file, const Tokens& tokens, std::size_t begin) {
  const auto is_wrong = [](std::uint16_t token) { return token >= kGpt2Vocabulary; };
  const auto wrong = std::ranges::find_if(tokens, is_wrong);
  if (wrong == tokens.end()) return;
  const bool is_swapped = std::ranges::none_of(tokens, is_wrong, swapped);
  const std::string advice =
      is_swapped ? "it seems to be big-endian; " +
                       python(fmt::format("np.fromfile('{}', '>u2').astype('<u2')", file.name()))
                 : "cut the text into GPT-2's tokens, of two bytes each";
  fail(ErrorCode::Io, kTokensOperation,
       "'{}': the token at offset {} (byte {}) is {}, outside GPT-2's vocabulary of {}; {}",
       file.name(), wrong - tokens.begin(),
       begin + 2 * static_cast<std::size_t>(wrong - tokens.begin()), *wrong, kGpt2Vocabulary,
       advice);
}

// The tokens begin after llm.c's header, or at once.
std::size_t begin_of_tokens(const InputFile& file, Bytes bytes) {
  std::array<std::int32_t, 3> header{};
  if (bytes.size() < sizeof(header)) return 0;
  std::memcpy(header.data(), bytes.data(), sizeof(header));
  refuse_other_llm_c(file, header[0]);
  if (header[0] != kLlmCMagic) return 0;
  const std::uint64_t num_bytes = kLlmCHeaderBytes + 2 * static_cast<std::uint64_t>(header[2]);
  require(header[1] == 1 && file.num_bytes() == num_bytes, ErrorCode::Io, kTokensOperation,
          "'{}' has the header of llm.c's version {} with {} tokens, and {} bytes; expected "
          "version 1 and {} bytes",
          file.name(), header[1], header[2], file.num_bytes(), num_bytes);
  return kLlmCHeaderBytes;
}

}  // namespace

Dataset read_tokens(const std::filesystem::path& path, std::size_t window) {
  InputFile file(path, kTokensOperation);
  Tokens tokens((file.num_bytes() + 1) / 2);
  const std::span<std::byte> memory =
      std::as_writable_bytes(std::span(tokens)).first(file.num_bytes());
  file.read_exactly(memory);
  const Bytes bytes(reinterpret_cast<const unsigned char*>(memory.data()), memory.size());
  refuse_other_formats(file, bytes);
  const std::size_t begin = begin_of_tokens(file, bytes);
  if (begin == 0) refuse_bytes(file, bytes);
  require(bytes.size() % 2 == 0, ErrorCode::Io, kTokensOperation,
          "'{}' has {} bytes; tokens of two bytes need an even number", file.name(), bytes.size());
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(begin / 2));
  refuse_wide_tokens(file, tokens);
  require_gpt2_tokens(file, tokens, begin);
  return windows_of(std::move(tokens), kGpt2Vocabulary, path.string(), window);
}

}  // namespace lockstep::datasets
