// A vocabulary as GPT-2's: the 256 bytes, and a token for each merge.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "datasets/tokenizer.h"

namespace lockstep::testing {

struct TinyVocabulary {
  // merges: as vocab.bpe writes them, "h e".
  explicit TinyVocabulary(const std::vector<std::string>& merges_in_order)
      : merges(merges_in_order) {
    char32_t next = 256;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool is_itself = (byte > ' ' && byte < 127) || (byte > 160 && byte != 173);
      const std::size_t number = numbers.size();
      numbers[datasets::utf8(is_itself ? byte : next++)] = number;
    }
    for (std::string merge : merges) {
      merge.erase(merge.find(' '), 1);
      const std::size_t number = numbers.size();
      numbers[merge] = number;
    }
  }

  void write(const std::filesystem::path& folder, const char* encoder = "encoder.json",
             const char* vocab = "vocab.bpe") const {
    std::ofstream(folder / encoder) << nlohmann::json(numbers).dump();
    std::ofstream file(folder / vocab);
    file << "#version: 0.2\n";
    for (const std::string& merge : merges) file << merge << '\n';
  }

  std::vector<std::string> merges;
  std::map<std::string, std::size_t> numbers;
};

}  // namespace lockstep::testing
