#include "kernels/cuda/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/log.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/physical_gpus.h"
#include "kernels/cuda/epilogues.h"
#include "kernels/cuda/linear_finish.h"
#include "kernels/cuda/product_timing.h"
#include "kernels/cuda/tuning_cache.h"
#include "kernels/matmul_tuning.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kMaxCandidates = 16;
// A stream whose earlier work takes longer is not waited for; times may then be too long.
constexpr std::chrono::seconds kLongestWait{2};

enum class Choice { timed, first_guess };

struct State {
  // Held while something is timed. Never while waiting for other streams: their work may need a
  // thread that waits for this mutex.
  std::mutex timing;

  std::shared_mutex mutex;  // guards all below
  TuningTable timed;
  TuningTable first_guesses;
  std::optional<TuningCache> cache;  // read when first asked
  TuningStatistics statistics;
};

State& state() {
  static State& instance = *new State;
  return instance;
}

const std::string& gpu_name(Stream& stream) {
  const auto gpu = static_cast<std::size_t>(runtime::cuda::cuda_stream(stream).gpu());
  return runtime::physical_gpus().at(gpu).name;
}

CacheKey cache_key(Stream& stream, const Product& product) {
  static const std::size_t version = cublasLtGetVersion();
  return {gpu_name(stream), version, key_of(product)};
}

std::optional<ProductPlan> look_up(const CacheKey& key, Choice choice) {
  State& all = state();
  const std::shared_lock lock(all.mutex);
  const TuningTable& table = choice == Choice::timed ? all.timed : all.first_guesses;
  const auto found = table.find(key);
  if (found == table.end()) return std::nullopt;
  return found->second;
}

// The epilogue that does most, by the library's first algorithm for it.
ProductPlan first_guess(Stream& stream, const Product& product) {
  for (const cublasLtEpilogue_t epilogue : epilogues_for(product)) {
    const auto found = candidates(stream, product, epilogue, kMaxCandidates);
    if (!found.empty()) return found.front();
  }
  fail(ErrorCode::Cuda, product.operation,
       "cuBLASLt {} has no algorithm for [{}, {}] x [{}, {}] in {}", cublasLtGetVersion(),
       product.a.rows, product.a.cols, product.b.rows, product.b.cols, to_string(product.c.dtype));
}

// From the cache file, if it has a plan that fits.
std::optional<ProductPlan> load(Stream& stream, const Product& product, const CacheKey& key) {
  State& all = state();
  const std::unique_lock lock(all.mutex);
  if (!all.cache) all.cache = TuningCache::from_environment();
  const auto found = all.cache->table().find(key);
  if (found == all.cache->table().end() || !is_runnable(stream, product, found->second)) {
    return std::nullopt;
  }
  ++all.statistics.num_loaded;
  all.timed[key] = found->second;
  return found->second;
}

// What became of an epilogue: the algorithms that the library named for it, and then refused.
struct Tried {
  cublasLtEpilogue_t epilogue;
  std::size_t num_found = 0;
  std::size_t num_refused = 0;
  std::optional<double> microseconds = {};  // of the fastest
};

// "134: 8 found, 2 refused, 3.10 us; 1: 0 found, 0 refused". gpu_check.sh makes a table of it.
std::string to_text(const std::vector<Tried>& all) {
  std::string text;
  for (const Tried& tried : all) {
    text += fmt::format("{}{}: {} found, {} refused", text.empty() ? "" : "; ",
                        static_cast<int>(tried.epilogue), tried.num_found, tried.num_refused);
    if (tried.microseconds) text += fmt::format(", {:.2f} us", *tried.microseconds);
  }
  return text;
}

// REQUIRES: state().timing held.
ProductPlan time_all(Stream& stream, const Product& product, ProductTimer& timer) {
  std::optional<ProductPlan> best;
  std::vector<Tried> all;
  for (const cublasLtEpilogue_t epilogue : epilogues_for(product)) {
    Tried& tried = all.emplace_back(Tried{epilogue});
    for (ProductPlan& plan : candidates(stream, product, epilogue, kMaxCandidates)) {
      ++tried.num_found;
      const auto best_time = best ? std::optional(best->microseconds) : std::nullopt;
      const std::optional<double> time = timer.microseconds(plan, best_time);
      if (!time) {
        ++tried.num_refused;
        continue;
      }
      tried.microseconds = std::min(*time, tried.microseconds.value_or(*time));
      if (best_time && *time >= *best_time) continue;
      plan.microseconds = *time;
      best = plan;
    }
  }
  log_debug("epilogues of {} [{}, {}] x {}: {}", product.operation, product.c.rows, product.c.cols,
            inner_size(product), to_text(all));
  return best ? *best : first_guess(stream, product);
}

void remember(const CacheKey& key, const ProductPlan& plan) {
  State& all = state();
  const std::unique_lock lock(all.mutex);
  all.timed[key] = plan;
  ++all.statistics.num_timed;
  if (all.cache) all.cache->add(key, plan);
}

ProductPlan tune(Stream& stream, const Product& product, const CacheKey& key) {
  State& all = state();
  // Earlier work on this GPU would be timed along.
  stream.record()->wait(runtime::Clock::now() + kLongestWait);
  std::optional<ProductTimer> timer;  // frees its memory, which waits for the GPU, after the lock
  const std::lock_guard lock(all.timing);
  if (const auto found = look_up(key, Choice::timed)) return *found;
  if (const auto loaded = load(stream, product, key)) return *loaded;
  timer.emplace(stream, product);
  const ProductPlan plan =
      timer->has_memory() ? time_all(stream, product, *timer) : first_guess(stream, product);
  remember(key, plan);
  log_debug("tuned {} [{}, {}] x {}: epilogue {}, {:.2f} us", product.operation, product.c.rows,
            product.c.cols, inner_size(product), static_cast<int>(plan.epilogue),
            plan.microseconds);
  return plan;
}

}  // namespace

ProductPlan plan_for(Stream& stream, const Product& product) {
  const CacheKey key = cache_key(stream, product);
  const Choice choice = is_matmul_tuning_on() ? Choice::timed : Choice::first_guess;
  if (const auto found = look_up(key, choice)) return *found;
  const bool can_time =
      choice == Choice::timed && !runtime::cuda::cuda_stream(stream).is_capturing();
  if (can_time) return tune(stream, product, key);
  const ProductPlan plan = first_guess(stream, product);
  if (choice == Choice::first_guess) {
    State& all = state();
    const std::unique_lock lock(all.mutex);
    all.first_guesses[key] = plan;
  }
  return plan;
}

void run(Stream& stream, const Product& product) {
  if (product.c.num_elements() == 0) return;
  if (inner_size(product) == 0) {
    // A sum of nothing: the library need not know it.
    if (product.write == Write::overwrite) zero_matrix(stream, product.c);
    if (product.finish == Product::Finish::forward) {
      finish_forward(stream, product.c, product.bias, product.activation, product.preactivation);
    }
    return;
  }
  ProductPlan plan = plan_for(stream, product);
  if (try_launch(stream, product, plan) == Launched::yes) return;
  // The first guess of an algorithm that was never run, or an address that it does not like.
  for (const cublasLtEpilogue_t epilogue : epilogues_for(product)) {
    for (const ProductPlan& other : candidates(stream, product, epilogue, kMaxCandidates)) {
      if (try_launch(stream, product, other) == Launched::yes) return;
    }
  }
  fail(ErrorCode::Cuda, product.operation,
       "cuBLASLt runs none of its algorithms for this product; LOCKSTEP_LOG=debug says why");
}

TuningStatistics tuning_statistics() {
  State& all = state();
  const std::shared_lock lock(all.mutex);
  return all.statistics;
}

void forget_tuning() {
  State& all = state();
  const std::unique_lock lock(all.mutex);
  all.timed.clear();
  all.first_guesses.clear();
  all.cache.reset();
  all.statistics = {};
}

}  // namespace lockstep::kernels::cuda
