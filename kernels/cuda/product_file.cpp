#include "kernels/cuda/product_file.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/log.h"
#include "engine/runtime/cuda/check.h"
#include "kernels/cuda/launch.h"

namespace lockstep::kernels::cuda {
namespace {

using Products = std::map<ProductKey, Plan>;

// Raised when lines, keys, or what product_plans.cpp trusts change.
constexpr int kFormat = 3;

std::uint64_t checksum(std::string_view text) {  // FNV-1a
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const char letter : text) sum = (sum ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return sum;
}

std::string first_line(int gpu) {
  int driver = 0;
  CUDA_CHECK(cudaDriverGetVersion(&driver));
  const runtime::PhysicalGpu& card = runtime::physical_gpus()[static_cast<std::size_t>(gpu)];
  return fmt::format("lockstep products {}: {}, compute capability {}.{}, driver {}, cuBLASLt {}\n",
                     kFormat, card.name, card.major, card.minor, driver, cublasLtGetVersion());
}

// Nothing if no variable says where the user's cache is.
std::optional<std::filesystem::path> path_of(std::string_view first_line) {
  const auto variable = [](const char* name) -> std::filesystem::path {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  std::filesystem::path cache = variable("XDG_CACHE_HOME");
  if (!cache.is_absolute()) cache = variable("HOME") / ".cache";
  if (!cache.is_absolute()) return std::nullopt;
  return cache / "lockstep" / fmt::format("products-{:016x}.txt", checksum(first_line));
}

// A product's line: its key without the GPU, and its plan.
std::string line_of(const ProductKey& key, const Plan& plan) {
  std::string line;
  for (std::size_t i = 1; i < key.size(); ++i) line += fmt::format("{} ", key[i]);
  line += fmt::format("{} {}", static_cast<int>(plan.finish_by), plan.workspace_bytes);
  for (const std::uint64_t word : plan.algorithm.data) line += fmt::format(" {}", word);
  return line + "\n";
}

bool read_line(std::istream& words, ProductKey& key, Plan& plan) {
  for (std::size_t i = 1; i < key.size(); ++i) words >> key[i];
  int finish = 0;
  words >> finish >> plan.workspace_bytes;
  for (std::uint64_t& word : plan.algorithm.data) words >> word;
  plan.finish_by = finish == 0 ? FinishBy::library : FinishBy::kernel;
  return !words.fail() && plan.workspace_bytes <= kProductWorkspaceBytes;
}

// Nothing for a text that is not a whole file of these products.
std::optional<Products> parse(const std::string& text, const std::string& first_line, int model) {
  const std::size_t begin = text.find('\n', first_line.size()) + 1;
  if (!text.starts_with(first_line) || begin == 0) return std::nullopt;
  const std::string body = text.substr(begin);
  if (text != first_line + fmt::format("{:016x}\n", checksum(body)) + body) return std::nullopt;
  Products products;
  std::istringstream words(body);
  while (words >> std::ws && !words.eof()) {
    ProductKey key{model};
    Plan plan;
    if (!read_line(words, key, plan)) return std::nullopt;
    products.emplace(key, plan);
  }
  return products;
}

Products read(const std::filesystem::path& path, const std::string& first_line, int model) {
  if (!std::filesystem::exists(path)) return {};
  auto products = parse(read_text_file(path, "products"), first_line, model);
  if (products) return *std::move(products);
  log_debug("{} is damaged, or of another GPU: products are timed again", path.string());
  return {};
}

// The cache is a convenience: without it a first step takes longer.
template <typename Body>
void unless_unusable(const Body& body) {
  try {
    body();
  } catch (const std::filesystem::filesystem_error& error) {
    log_debug("the timed products are not kept: {}", error.what());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Io) throw;
    log_debug("the timed products are not kept: {}", error.what());
  }
}

}  // namespace

Products read_products(int gpu) {
  Products products;
  unless_unusable([&] {
    const std::string name = first_line(gpu);
    if (const auto path = path_of(name)) products = read(*path, name, model_of(gpu));
  });
  return products;
}

void keep_products(int gpu, const Products& products) {
  unless_unusable([&] {
    const std::string name = first_line(gpu);
    const auto path = path_of(name);
    if (!path) return;
    Products all = read(*path, name, model_of(gpu));
    for (const auto& [key, plan] : products) all.insert_or_assign(key, plan);
    std::string body;
    for (const auto& [key, plan] : all) body += line_of(key, plan);
    std::filesystem::create_directories(path->parent_path());
    write_file_atomically(*path, name + fmt::format("{:016x}\n", checksum(body)) + body);
  });
}

}  // namespace lockstep::kernels::cuda
