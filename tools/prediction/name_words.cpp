#include "tools/prediction/name_words.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace lockstep::tools {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_number(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, is_digit);
}

std::vector<std::string> split_words(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// "rtx4090", "titanxp" and "1080ti" are two words each.
void add_parts(std::string word, std::vector<std::string>& parts) {
  for (const std::string_view family :
       {"gtx", "rtx", "titan", "tesla", "quadro", "dgx", "hgx", "nvidia"}) {
    if (word.size() > family.size() && word.starts_with(family)) {
      parts.emplace_back(family);
      word.erase(0, family.size());
    }
  }
  if (word.size() > 2 && word.ends_with("ti") && is_digit(word[word.size() - 3])) {
    parts.push_back(word.substr(0, word.size() - 2));
    word = "ti";
  }
  parts.push_back(word);
}

}  // namespace

std::string name_words(std::string_view name) {
  std::vector<std::string> words;
  for (const std::string& word : split_words(name)) {
    if (word == "express" && !words.empty() && words.back() == "pci") {
      words.back() = "pcie";
      continue;
    }
    // "gen3", "gen 3" and "3 0" after the link's name are its generation.
    const bool is_link = !words.empty() && (words.back() == "pcie" || words.back() == "nvlink");
    if (is_link && word == "gen") continue;
    const std::string number = word.starts_with("gen") ? word.substr(3) : word;
    if (is_link && number.size() == 1 && is_number(number)) {
      words.back() += number;
      continue;
    }
    add_parts(word, words);
  }
  std::string result = " ";
  for (const std::string& word : words) result += word + " ";
  return result;
}

bool has_words(std::string_view words, std::string_view phrase) {
  return words.find(" " + std::string(phrase) + " ") != std::string_view::npos;
}

}  // namespace lockstep::tools
