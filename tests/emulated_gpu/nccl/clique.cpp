#include "tests/emulated_gpu/nccl/clique.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

namespace emulated_nccl {
namespace {

constexpr std::chrono::microseconds kInterval{50};

// Another rank's part, with its data after it.
struct Given {
  Part part;
  std::vector<char> data;
};

Given read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  Given given;
  file.read(reinterpret_cast<char*>(&given.part), sizeof given.part);
  given.data.assign(std::istreambuf_iterator<char>(file), {});
  return given;
}

}  // namespace

Clique::Clique(const std::string& name, int num_ranks, int rank)
    : folder_(std::filesystem::temp_directory_path() / name), num_ranks_(num_ranks), rank_(rank) {
  std::filesystem::create_directory(folder_);
  std::ofstream(file("joined", rank_)).put('1');
}

Clique::~Clique() {
  std::ofstream(file("left", rank_)).put('1');
  for (int rank = 0; rank < num_ranks_; ++rank) {
    if (!std::filesystem::exists(file("left", rank))) return;
  }
  std::error_code ignored;  // of two that leave at once, one finds nothing any more
  std::filesystem::remove_all(folder_, ignored);
}

std::filesystem::path Clique::file(const std::string& name, int rank) const {
  return folder_ / (name + "." + std::to_string(rank));
}

bool Clique::is_complete() {
  for (int rank = 0; rank < num_ranks_ && !is_complete_; ++rank) {
    if (!std::filesystem::exists(file("joined", rank))) return false;
  }
  is_complete_ = true;
  return true;
}

// Whole at once: under another name first.
void Clique::give(const Part& part) const {
  const std::filesystem::path draft = file("draft", rank_);
  std::ofstream written(draft, std::ios::binary);
  written.write(reinterpret_cast<const char*>(&part), sizeof part);
  const std::size_t num_bytes = input_bytes(part, rank_, static_cast<std::size_t>(num_ranks_));
  written.write(static_cast<const char*>(part.input), static_cast<std::streamsize>(num_bytes));
  written.close();
  std::filesystem::rename(draft, file("part." + std::to_string(round_), rank_));
}

bool Clique::wait_for(const std::filesystem::path& path) const {
  while (!is_aborted_ && !std::filesystem::exists(path)) std::this_thread::sleep_for(kInterval);
  return !is_aborted_;
}

void Clique::meet(const Part& part) {
  const std::lock_guard lock(mutex_);
  if (is_aborted_) return;
  give(part);
  const std::string name = "part." + std::to_string(round_);
  std::vector<Given> given;
  for (int rank = 0; rank < num_ranks_; ++rank) {
    if (!wait_for(file(name, rank))) return;
    given.push_back(read(file(name, rank)));
  }
  std::vector<Part> parts;
  for (Given& theirs : given) {
    while (!theirs.part.fits(part)) {
      if (is_aborted_) return;
      std::this_thread::sleep_for(kInterval);
    }
    parts.push_back(theirs.part);
    parts.back().input = theirs.data.data();
  }
  parts[static_cast<std::size_t>(rank_)].output = part.output;
  move_data(parts, static_cast<std::size_t>(rank_));
  if (round_ > 0) std::filesystem::remove(file("part." + std::to_string(round_ - 1), rank_));
  ++round_;
}

}  // namespace emulated_nccl
