#include "tests/fuzz/damage.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "engine/core/rng.h"

namespace lockstep::testing {
namespace {

// A place in the bytes, the end included.
std::size_t place_in(const std::string& bytes, Rng& rng) {
  return static_cast<std::size_t>(rng.below(bytes.size() + 1));
}

// A piece of at most 64 bytes.
std::string piece_of(const std::string& bytes, Rng& rng) {
  return bytes.substr(place_in(bytes, rng), 1 + rng.below(64));
}

void turn_bits(std::string& bytes, Rng& rng) {
  if (bytes.empty()) return;
  for (std::uint64_t i = 0; i <= rng.below(8); ++i) {
    char& byte = bytes[static_cast<std::size_t>(rng.below(bytes.size()))];
    byte = static_cast<char>(byte ^ 1 << rng.below(8));
  }
}

void cut_off(std::string& bytes, Rng& rng) {
  bytes.resize(place_in(bytes, rng));
}

void double_a_piece(std::string& bytes, Rng& rng) {
  bytes.insert(place_in(bytes, rng), piece_of(bytes, rng));
}

void leave_out_a_piece(std::string& bytes, Rng& rng) {
  bytes.erase(place_in(bytes, rng), 1 + rng.below(64));
}

// One to eight bytes, in either order, of a number that sizes and lengths should not be.
void splice_a_size(std::string& bytes, Rng& rng) {
  constexpr std::array<std::uint64_t, 8> kSizes = {
      0, 1, 0x7fffffff, 0xffffffff, ~std::uint64_t{0}, std::uint64_t{1} << 63, 10'000'000'000, 100};
  const std::uint64_t size = rng.below(4) == 0 ? rng.next_word() : kSizes[rng.below(kSizes.size())];
  const std::size_t width = std::size_t{1} << rng.below(4);
  const bool is_big_endian = rng.below(2) == 0;
  // Headers stand at the front.
  const std::size_t place = rng.below(2) == 0 ? rng.below(32) : place_in(bytes, rng);
  for (std::size_t i = 0; i < width && place + i < bytes.size(); ++i) {
    const std::size_t shift = 8 * (is_big_endian ? width - 1 - i : i);
    bytes[place + i] = static_cast<char>(size >> shift);
  }
}

void write_a_huge_number(std::string& bytes, Rng& rng) {
  constexpr std::array<std::string_view, 9> kNumbers = {"18446744073709551616",
                                                        "9223372036854775807",
                                                        "-1",
                                                        "1e999",
                                                        "4294967296",
                                                        "0.5",
                                                        "-0",
                                                        "nan",
                                                        "1e-999"};
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const auto begin = std::find_if(bytes.begin() + static_cast<std::ptrdiff_t>(place_in(bytes, rng)),
                                  bytes.end(), is_digit);
  const auto end = std::find_if_not(begin, bytes.end(), is_digit);
  bytes.replace(begin, end, kNumbers[rng.below(kNumbers.size())]);
}

void add_nuls(std::string& bytes, Rng& rng) {
  bytes.insert(place_in(bytes, rng), 1 + rng.below(16), '\0');
}

void nest_deeply(std::string& bytes, Rng& rng) {
  constexpr std::array<std::string_view, 4> kOpenings = {"[", "{\"a\":", "[[],", "\""};
  const std::string_view opening = kOpenings[rng.below(kOpenings.size())];
  std::string nest;
  for (std::uint64_t i = rng.below(20'000); i > 0; --i) nest += opening;
  bytes.insert(place_in(bytes, rng), nest);
}

// Two entries under one name, or an entry where none should be.
void double_what_stands_between_quotes(std::string& bytes, Rng& rng) {
  const std::size_t begin = bytes.find('"', place_in(bytes, rng));
  if (begin == std::string::npos) return double_a_piece(bytes, rng);
  const std::size_t end = bytes.find_first_of("}]", begin);
  const std::string piece = bytes.substr(begin, end == std::string::npos ? 16 : end + 1 - begin);
  bytes.insert(begin, piece + ",");
}

void prolong(std::string& bytes, Rng& rng) {
  const std::string piece = piece_of(bytes, rng);
  for (std::uint64_t i = rng.below(2'000); i > 0; --i) bytes += piece;
}

constexpr std::array kKinds = {turn_bits,
                               cut_off,
                               double_a_piece,
                               leave_out_a_piece,
                               splice_a_size,
                               splice_a_size,
                               write_a_huge_number,
                               add_nuls,
                               nest_deeply,
                               double_what_stands_between_quotes,
                               prolong};

}  // namespace

std::string damaged(std::string_view valid, std::uint64_t seed) {
  Rng rng(seed, 0xda3a6e);
  std::string bytes(valid);
  for (std::uint64_t i = rng.below(4) + 1; i > 0; --i) kKinds[rng.below(kKinds.size())](bytes, rng);
  return bytes;
}

}  // namespace lockstep::testing
