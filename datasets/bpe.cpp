#include "datasets/bpe.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <queue>
#include <span>

#include "datasets/letter_ranges.h"
#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/json_file.h"
#include "engine/core/text.h"

namespace lockstep::datasets {
namespace {

constexpr std::string_view kVocabOperation = "vocab";

// --- words ---

enum class Kind { letter, number, space, other };

bool is_within(std::span<const std::uint32_t> distances, char32_t character) {
  bool is_inside = false;
  std::uint32_t next = 0;
  for (const std::uint32_t distance : distances) {
    next += distance;
    if (character < next) break;
    is_inside = !is_inside;
  }
  return is_inside;
}

Kind kind_of(char32_t c) {
  const bool is_space = (c >= '\t' && c <= '\r') || c == ' ' || c == 0x85 || c == 0xa0 ||
                        c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
                        c == 0x202f || c == 0x205f || c == 0x3000;
  if (is_space) return Kind::space;
  if (is_within(kLetterRanges, c)) return Kind::letter;
  return is_within(kNumberRanges, c) ? Kind::number : Kind::other;
}

// Consecutive characters of one kind.
struct Run {
  Kind kind;
  std::size_t last;  // where the last of them begins
  std::size_t end;
};

// REQUIRES: begin < text.size().
Run run_from(std::string_view text, std::size_t begin, const std::string& name) {
  std::size_t at = begin;
  Run run{kind_of(next_character(text, at, name)), begin, at};
  while (at < text.size()) {
    const std::size_t last = at;
    if (kind_of(next_character(text, at, name)) != run.kind) break;
    run.last = last;
    run.end = at;
  }
  return run;
}

// --- files ---

// The files write a byte as a character: printable bytes as themselves, the others as U+0100 and
// up.
std::array<char32_t, 256> characters_of_bytes() {
  std::array<char32_t, 256> characters{};
  char32_t next = 256;
  for (std::size_t byte = 0; byte < characters.size(); ++byte) {
    const bool is_printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    characters[byte] = is_printable ? static_cast<char32_t>(byte) : next++;
  }
  return characters;
}

std::string bytes_of(std::string_view written, const std::string& name) {
  static const std::array<char32_t, 256> kCharacters = characters_of_bytes();
  std::string bytes;
  for (std::size_t at = 0; at < written.size();) {
    const auto place = std::ranges::find(kCharacters, next_character(written, at, name));
    require(place != kCharacters.end(), ErrorCode::Io, kVocabOperation,
            "'{}': '{}' has a character that does not stand for a byte", name, shown(written));
    bytes += static_cast<char>(place - kCharacters.begin());
  }
  return bytes;
}

std::filesystem::path find_file(const std::filesystem::path& folder, std::string_view name,
                                std::string_view other_name) {
  std::error_code ignored;
  for (const std::string_view candidate : {name, other_name}) {
    if (std::filesystem::exists(folder / candidate, ignored)) return folder / candidate;
  }
  fail(ErrorCode::Io, kVocabOperation,
       "no {} or {} in '{}'; GPT-2's vocabulary is encoder.json and vocab.bpe, as OpenAI has them, "
       "or vocab.json and merges.txt, as Hugging Face has",
       name, other_name, folder.string());
}

}  // namespace

std::size_t end_of_word(std::string_view text, std::size_t begin, const std::string& name) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.substr(begin).starts_with(ending)) return begin + ending.size();
  }
  const std::size_t behind_space = begin + (text[begin] == ' ' ? 1 : 0);
  if (behind_space < text.size()) {
    const Run word = run_from(text, behind_space, name);
    if (word.kind != Kind::space) return word.end;
  }
  // The last of several spaces belongs to the next word.
  const Run spaces = run_from(text, begin, name);
  return spaces.end < text.size() && spaces.last > begin ? spaces.last : spaces.end;
}

BytePairs::BytePairs(const std::filesystem::path& folder) {
  read_tokens(find_file(folder, "encoder.json", "vocab.json"));
  read_merges(find_file(folder, "vocab.bpe", "merges.txt"));
}

void BytePairs::read_tokens(const std::filesystem::path& path) {
  const JsonFile file(path, kVocabOperation);
  const nlohmann::json& numbers = file.json();
  if (!numbers.is_object() || numbers.size() > kMostTokens) {
    file.fail_at("", fmt::format("expected an object of at most {} tokens", kMostTokens));
  }
  bytes_.resize(numbers.size());
  for (const auto& [written, number] : numbers.items()) {
    const std::size_t token =
        number.is_number_unsigned() ? number.get<std::size_t>() : bytes_.size();
    if (token >= bytes_.size() || !bytes_[token].empty()) {
      file.fail_at(shown(written), fmt::format("expected a number from 0 to {} that no other token "
                                               "has",
                                               bytes_.size() - 1));
    }
    bytes_[token] = bytes_of(written, path.string());
    tokens_.emplace(bytes_[token], static_cast<std::uint16_t>(token));
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (tokens_.contains(std::string(1, static_cast<char>(byte)))) continue;
    file.fail_at("", fmt::format("there is no token for the byte {}", byte));
  }
}

void BytePairs::read_merges(const std::filesystem::path& path) {
  const std::string text = read_text_file(path, kVocabOperation);
  std::uint32_t line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    begin = end + 1;
    ++line_number;
    if (line.empty() || line.starts_with("#version")) continue;
    const std::size_t space = line.find(' ');
    require(space != line.npos && space > 0 && space + 1 < line.size(), ErrorCode::Io,
            kVocabOperation, "'{}', line {}: expected two tokens, found '{}'", path.string(),
            line_number, shown(line));
    const std::string left = bytes_of(line.substr(0, space), path.string());
    const std::string right = bytes_of(line.substr(space + 1), path.string());
    for (const std::string& needed : {left, right, left + right}) {
      require(tokens_.contains(needed), ErrorCode::Io, kVocabOperation,
              "'{}' does not belong to its folder's encoder.json: line {} merges '{}', and '{}' is "
              "no token there",
              path.string(), line_number, shown(line), shown(needed));
    }
    const std::uint32_t pair = std::uint32_t{tokens_.at(left)} << 16 | tokens_.at(right);
    merges_.emplace(pair, Merge{line_number, tokens_.at(left + right)});
  }
}

const BytePairs::Merge* BytePairs::find_merge(std::uint16_t left, std::uint16_t right) const {
  const auto found = merges_.find(std::uint32_t{left} << 16 | right);
  return found == merges_.end() ? nullptr : &found->second;
}

Tokens BytePairs::encode_word(std::string_view word) const {
  // A token is stored at the place where its bytes begin; a merge removes its right token from the
  // list.
  constexpr std::size_t kGone = static_cast<std::size_t>(-1);
  struct Place {
    std::uint16_t token;
    std::size_t before, behind;  // neighbours; behind is kGone at a place without a token
  };
  struct Pair {
    std::uint32_t rank;
    std::size_t at;
    bool operator>(const Pair& other) const {
      return std::pair(rank, at) > std::pair(other.rank, other.at);
    }
  };
  std::vector<Place> places;
  for (std::size_t i = 0; i < word.size(); ++i) {
    places.push_back({tokens_.at(std::string(1, word[i])), i - 1, i + 1});
  }
  const auto merge_at = [&](std::size_t at) -> const Merge* {
    const std::size_t behind = places[at].behind;
    return behind < places.size() ? find_merge(places[at].token, places[behind].token) : nullptr;
  };
  std::priority_queue<Pair, std::vector<Pair>, std::greater<>> pairs;
  const auto add_pair = [&](std::size_t at) {
    if (at >= places.size()) return;
    if (const Merge* merge = merge_at(at)) pairs.push({merge->rank, at});
  };
  for (std::size_t i = 0; i < places.size(); ++i) add_pair(i);
  while (!pairs.empty()) {
    const Pair pair = pairs.top();
    pairs.pop();
    const Merge* const merge = merge_at(pair.at);
    if (merge == nullptr || merge->rank != pair.rank) continue;  // another merge took one of them
    Place& left = places[pair.at];
    const std::size_t behind = places[left.behind].behind;
    places[left.behind].behind = kGone;
    left = {merge->result, left.before, behind};
    if (behind < places.size()) places[behind].before = pair.at;
    add_pair(left.before);
    add_pair(pair.at);
  }
  Tokens tokens;
  for (std::size_t i = 0; i < places.size(); i = places[i].behind) {
    tokens.push_back(places[i].token);
  }
  return tokens;
}

Tokens BytePairs::encode(std::string_view text, const std::string& name) const {
  Tokens tokens;
  std::unordered_map<std::string_view, Tokens> known;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = end_of_word(text, begin, name);
    const std::string_view word = text.substr(begin, end - begin);
    const auto [place, is_new] = known.try_emplace(word);
    if (is_new) place->second = encode_word(word);
    tokens.insert(tokens.end(), place->second.begin(), place->second.end());
    begin = end;
  }
  return tokens;
}

}  // namespace lockstep::datasets
