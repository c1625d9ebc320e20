#include "kernels/cuda/tuning_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "engine/core/log.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr std::string_view kFirstLine = "lockstep tuning 1";

using AlgorithmWords = std::array<std::uint64_t, sizeof(cublasLtMatmulAlgo_t) / 8>;
static_assert(sizeof(AlgorithmWords) == sizeof(cublasLtMatmulAlgo_t));

std::string line_of(const CacheKey& key, const ProductPlan& plan) {
  const auto& [gpu, version, product] = key;
  AlgorithmWords words;
  std::memcpy(words.data(), &plan.algorithm, sizeof(words));
  std::string line = fmt::format("{}\t{}\t", gpu, version);
  for (const std::int64_t number : product) line += fmt::format("{} ", number);
  line += fmt::format("\t{} {} {:.3f}\t", static_cast<int>(plan.epilogue), plan.workspace_bytes,
                      plan.microseconds);
  for (const std::uint64_t word : words) line += fmt::format("{:016x} ", word);
  return line;
}

// Reads whitespace-separated numbers to the end of the text; false unless they are all there.
template <typename Numbers>
bool read_numbers(const std::string& text, std::ios_base& (*base)(std::ios_base&),
                  Numbers& numbers) {
  std::istringstream in(text);
  in >> base;
  for (auto& number : numbers) in >> number;
  std::string rest;
  return !in.fail() && !(in >> rest);
}

std::optional<std::pair<CacheKey, ProductPlan>> parse_line(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) fields.push_back(field);
  if (fields.size() != 5) return std::nullopt;
  CacheKey key;
  ProductPlan plan;
  std::get<0>(key) = fields[0];
  std::array<std::size_t, 1> version{};
  std::array<double, 3> figures{};
  AlgorithmWords words{};
  if (!read_numbers(fields[1], std::dec, version) ||
      !read_numbers(fields[2], std::dec, std::get<2>(key)) ||
      !read_numbers(fields[3], std::dec, figures) || !read_numbers(fields[4], std::hex, words)) {
    return std::nullopt;
  }
  std::get<1>(key) = version[0];
  plan.epilogue = static_cast<cublasLtEpilogue_t>(static_cast<int>(figures[0]));
  plan.workspace_bytes = static_cast<std::size_t>(figures[1]);
  plan.microseconds = figures[2];
  std::memcpy(&plan.algorithm, words.data(), sizeof(words));
  return std::pair{key, plan};
}

}  // namespace

TuningCache::TuningCache(std::filesystem::path path) : path_(std::move(path)) {
  if (!path_.empty()) read();
}

TuningCache TuningCache::from_environment() {
  const char* path = std::getenv("LOCKSTEP_TUNING_CACHE");
  return TuningCache(path ? path : "");
}

void TuningCache::read() {
  std::ifstream in(path_);
  if (!in) return;
  std::string line;
  if (!std::getline(in, line) || line != kFirstLine) {
    is_ours_ = false;
    log_warning("LOCKSTEP_TUNING_CACHE: {} is not a tuning file; it is neither read nor written",
                path_.string());
    return;
  }
  while (std::getline(in, line)) {
    const auto entry = parse_line(line);
    if (!entry) {
      log_warning("LOCKSTEP_TUNING_CACHE: {} is damaged; starting with an empty table",
                  path_.string());
      table_.clear();
      return;
    }
    table_.insert(*entry);
  }
}

void TuningCache::add(const CacheKey& key, const ProductPlan& plan) {
  table_[key] = plan;
  if (!path_.empty() && is_ours_) write();
}

void TuningCache::write() {
  std::filesystem::path temporary = path_;
  temporary += fmt::format(".{}", getpid());
  std::ofstream out(temporary, std::ios::trunc);
  out << kFirstLine << '\n';
  for (const auto& [key, plan] : table_) out << line_of(key, plan) << '\n';
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(temporary, path_, error);
  if (out && !error) return;
  is_ours_ = false;
  log_warning("LOCKSTEP_TUNING_CACHE: {} cannot be written; going on without it", path_.string());
  std::filesystem::remove(temporary, error);
}

}  // namespace lockstep::kernels::cuda
