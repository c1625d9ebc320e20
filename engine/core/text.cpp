#include "engine/core/text.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace lockstep {

namespace {

constexpr std::size_t kMaxBytes = 80;

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

}  // namespace

std::string shown(std::string_view text) {
  std::size_t length = std::min(text.size(), kMaxBytes);
  // Does not cut a UTF-8 character, which has at most three bytes after its first.
  for (int i = 0; i < 3 && length < text.size() && is_continuation(text[length]); ++i) --length;
  std::string result(text.substr(0, length));
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (length < text.size()) result += "...";
  return result;
}

std::string shell_quoted(std::string_view text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows of the usual table: distances of the first i, i - 1 and i - 2 letters of a to each
  // beginning of b.
  std::vector<std::size_t> row(b.size() + 1), above(b.size() + 1), above_that(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    above_that.swap(above);
    above.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, above[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], above_that[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string did_you_mean(std::string_view word, std::span<const std::string> words) {
  const std::string* nearest = nullptr;
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : words) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance >= least || distance >= candidate.size()) continue;
    least = distance;
    nearest = &candidate;
  }
  const auto continues = [&](const std::string& candidate) { return candidate.starts_with(word); };
  if (!nearest && word.size() >= 2) {
    const auto found = std::ranges::find_if(words, continues);
    if (found != words.end()) nearest = &*found;
  }
  return nearest ? fmt::format("; did you mean '{}'?", *nearest) : "";
}

}  // namespace lockstep
