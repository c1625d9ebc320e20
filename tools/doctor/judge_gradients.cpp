// The optimizer must use the gradient of the mean loss over the rows of all ranks.
//
// It is computed from sketches of each rank's backward passes.
//
// If the loss of rank r is a mean over n_r rows times s_r, its gradient is G_r = s_r / n_r * S_r,
// where S_r sums the gradients of its rows (for a sum over rows: G_r = s_r * S_r). One device with
// all N rows would have used M = (1/N) * sum of S_r.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/judges.h"

namespace lockstep::doctor {
namespace {

// By parameter, then by element of the sketch.
using Values = std::vector<double>;

struct RankGradient {
  Values used;         // what the optimizer used
  Values own;          // G: from its backward passes, all parameters in a row
  Values sum_of_rows;  // S
  std::size_t num_rows = 0;
  double upstream = 1;  // s of its last loss
  bool is_mean = true;
  double weight_of_row = 0;  // s / n of its last loss
};

struct GlobalGradient {
  std::vector<RankGradient> ranks;
  Values mean;               // M
  Values mean_of_ranks;      // the ranks' mean of G
  std::vector<double> size;  // size of each parameter's values; tolerances are relative to it
  std::size_t num_rows = 0;  // N

  // True if the two differ only by rounding.
  bool is_close(const Values& a, const Values& b) const;
  // The factor f with a = f * b, if there is one.
  std::optional<double> factor(const Values& a, const Values& b) const;
};

constexpr double kTolerance = 3e-4;  // float32 sums' rounding, relative to their terms

// The factor on each row's gradient, if it is the same in all losses of the pass; 1 without rows.
std::optional<double> factor_of_rows(const std::vector<LossRecord>& losses) {
  if (losses.empty()) return {};
  std::optional<double> factor;
  for (const LossRecord& loss : losses) {
    if (loss.num_rows == 0) continue;
    const double of_loss =
        loss.upstream / (loss.is_mean ? static_cast<double>(loss.num_rows) : 1.0);
    if (of_loss == 0 || !std::isfinite(of_loss)) return {};
    if (factor && std::abs(*factor - of_loss) > 1e-6 * std::abs(of_loss)) return {};
    factor = of_loss;
  }
  return factor.value_or(1);
}

bool is_finite(const Values& values) {
  return std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
}

std::optional<RankGradient> rank_gradient(const StepRecord& step) {
  RankGradient result;
  result.num_rows = num_rows(step);
  if (step.was_clipped || step.passes.empty()) return {};
  for (const ParameterRecord& parameter : step.parameters) {
    if (!parameter.has_gradient || parameter.parts.empty() || parameter.was_discarded ||
        parameter.holds_used_one) {
      return {};
    }
    Values own(kSketchSize), sum(kSketchSize);
    for (const PartRecord& part : parameter.parts) {
      const auto pass = step.passes.find(part.pass);
      if (pass == step.passes.end()) return {};
      const std::optional<double> factor = factor_of_rows(pass->second);
      if (!factor) return {};
      result.upstream = pass->second.back().upstream;
      result.is_mean = pass->second.back().is_mean;
      result.weight_of_row = *factor;
      for (std::size_t i = 0; i < kSketchSize; ++i) {
        own[i] += part.gradient[i];
        sum[i] += part.gradient[i] / *factor;
      }
    }
    result.own.insert(result.own.end(), own.begin(), own.end());
    result.sum_of_rows.insert(result.sum_of_rows.end(), sum.begin(), sum.end());
    result.used.insert(result.used.end(), parameter.used.begin(), parameter.used.end());
  }
  if (!is_finite(result.own) || !is_finite(result.used)) return {};
  return result;
}

// Empty if the records do not say enough: a loss of another kind, gradients removed or clipped,
// numbers that are not finite.
std::optional<GlobalGradient> global_gradient(const Training& training, std::size_t step) {
  GlobalGradient global;
  for (std::size_t rank = 0; rank < training.world_size(); ++rank) {
    std::optional<RankGradient> of_rank = rank_gradient(training.step(rank, step));
    if (!of_rank) return {};
    global.num_rows += of_rank->num_rows;
    global.ranks.push_back(std::move(*of_rank));
  }
  if (global.num_rows == 0) return {};
  const std::size_t length = global.ranks[0].own.size();
  global.mean.assign(length, 0);
  global.mean_of_ranks.assign(length, 0);
  global.size.assign(length / kSketchSize, 0);
  for (const RankGradient& rank : global.ranks) {
    if (rank.own.size() != length) return {};
    for (std::size_t i = 0; i < length; ++i) {
      const double share = rank.sum_of_rows[i] / static_cast<double>(global.num_rows);
      global.mean[i] += share;
      global.mean_of_ranks[i] += rank.own[i] / static_cast<double>(training.world_size());
      global.size[i / kSketchSize] += std::abs(share) / kSketchSize;
    }
  }
  return global;
}

bool GlobalGradient::is_close(const Values& a, const Values& b) const {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double largest = std::max(std::abs(a[i]), std::abs(b[i]));
    const double scale = std::max(largest, size[i / kSketchSize]);
    if (std::abs(a[i] - b[i]) > kTolerance * scale + 1e-12) return false;
  }
  return true;
}

std::optional<double> GlobalGradient::factor(const Values& a, const Values& b) const {
  double product = 0, square = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double weight = size[i / kSketchSize] > 0 ? 1 / size[i / kSketchSize] : 0;
    product += weight * a[i] * weight * b[i];
    square += weight * b[i] * weight * b[i];
  }
  if (square <= 0) return {};
  const double result = product / square;
  Values scaled = b;
  for (double& value : scaled) value *= result;
  if (!is_close(a, scaled)) return {};
  return result;
}

bool is_near(double value, double wanted) {
  return std::abs(value - wanted) <= 2e-3 * std::abs(wanted);
}

// One number per rank, as "16, 32".
template <typename Get>
std::string for_each_rank(const GlobalGradient& gradient, const Get& get) {
  std::string text;
  for (const RankGradient& rank : gradient.ranks) {
    text += (text.empty() ? "" : ", ") + fmt::format("{}", get(rank));
  }
  return text;
}

std::string rows_of_ranks(const GlobalGradient& gradient) {
  return for_each_rank(gradient, [](const RankGradient& rank) { return rank.num_rows; });
}

// "rank 3 has no rows", "ranks 2, 3 have no rows"; empty if all have some.
std::string ranks_without_rows(const GlobalGradient& gradient) {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < gradient.ranks.size(); ++rank) {
    if (gradient.ranks[rank].num_rows == 0) ranks.push_back(rank);
  }
  if (ranks.empty()) return {};
  return fmt::format("rank{} {} {} no rows", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "),
                     ranks.size() == 1 ? "has" : "have");
}

constexpr const char* kMeanRule =
    "n ranks make the step that one device would make with all their rows";

// The average divides by the number of all ranks, and only some have a loss.
Finding of_idle_ranks(const GlobalGradient& gradient, std::uint64_t step, double factor) {
  return {"mean-gradient",
          fmt::format("in step {} the gradient is {:.4g} times that of the mean loss over the {} "
                      "rows (rows: {}): {}, and the average over {} ranks counts "
                      "the zeros",
                      step, factor, gradient.num_rows, rows_of_ranks(gradient),
                      ranks_without_rows(gradient), gradient.ranks.size()),
          kMeanRule,
          "weigh each rank's loss by its rows * ranks / rows of all, or give every rank rows: a "
          "larger batch, or fewer ranks"};
}

Finding of_factor(const GlobalGradient& gradient, std::uint64_t step, double factor) {
  const std::size_t n = gradient.ranks.size();
  const auto num_idle = std::ranges::count(gradient.ranks, 0U, &RankGradient::num_rows);
  const double share_of_busy = 1 - static_cast<double>(num_idle) / static_cast<double>(n);
  if (num_idle > 0 && is_near(factor, share_of_busy)) return of_idle_ranks(gradient, step, factor);
  return {"mean-gradient",
          fmt::format("in step {} the gradient is {:.4g} times that of the mean loss over the {} "
                      "rows of {} ranks (rows: {})",
                      step, factor, gradient.num_rows, n, rows_of_ranks(gradient)),
          kMeanRule,
          factor > 1 ? "gradients that are summed and not averaged, or a loss that is scaled up "
                       "although the ranks' gradients are averaged"
                     : "gradients that are divided twice: averaged, and the loss or the sum "
                       "divided by the number of ranks or passes besides"};
}

// factor: of the used gradient to the mean over the ranks.
Finding of_weights(const GlobalGradient& gradient, std::uint64_t step, double factor) {
  const auto num_rows = static_cast<double>(gradient.num_rows);
  const double share = factor / static_cast<double>(gradient.ranks.size());
  const std::string each = for_each_rank(gradient, [&](const RankGradient& rank) {
    return rank.num_rows == 0 ? "-" : fmt::format("{:.4g}", rank.weight_of_row * share * num_rows);
  });
  const std::string idle = ranks_without_rows(gradient);
  return {"equal-rows",
          fmt::format("in step {} rows weigh differently: the ranks have {} rows, and each row "
                      "counts {} times what it would in the mean over all {}{}",
                      step, rows_of_ranks(gradient), each, gradient.num_rows,
                      idle.empty() ? "" : "; " + idle + ", and the average counts the zeros"),
          "every row of the batch counts the same, whichever rank it is on",
          "a mean of means: weigh each rank's loss by its rows * ranks / rows of all, or give all "
          "ranks equally many rows"};
}

Finding not_reduced(const GlobalGradient& gradient, std::uint64_t step, std::size_t rank) {
  return {"reduced-gradient",
          fmt::format("in step {} rank {} uses the gradient of its own {} rows, not that of the {} "
                      "rows of all {} ranks",
                      step, rank, gradient.ranks[rank].num_rows, gradient.num_rows,
                      gradient.ranks.size()),
          "every step uses gradients that were reduced over all ranks",
          "a forward pass inside no_sync whose gradient the step uses, a model that is called "
          "without its wrapper, or an all-reduce that is skipped"};
}

Finding of_no_kind(const GlobalGradient& gradient, const Training& training, std::size_t number) {
  std::string where;
  const StepRecord& step = training.step(0, number);
  for (std::size_t p = 0; p < step.parameters.size() && where.empty(); ++p) {
    for (std::size_t i = p * kSketchSize; i < (p + 1) * kSketchSize; ++i) {
      const double difference = std::abs(gradient.ranks[0].used[i] - gradient.mean[i]);
      if (difference > 1e-2 * gradient.size[p]) where = name_of(step, p);
    }
  }
  return {"mean-gradient",
          fmt::format("in step {} the gradient of {} is not an average of what the ranks' backward "
                      "passes made of their {} rows",
                      step.step, where.empty() ? "some parameter" : where, rows_of_ranks(gradient)),
          "the gradient of a step is the mean over the rows of all ranks",
          "parameters that the all-reduce leaves out, memory that is written while it is reduced, "
          "or a reduction other than the average"};
}

// A loss that is a sum over rows may be summed over ranks too.
bool is_sum_of_losses(const GlobalGradient& gradient, double factor) {
  const bool are_sums = std::ranges::none_of(gradient.ranks, &RankGradient::is_mean);
  return are_sums && is_near(factor, static_cast<double>(gradient.num_rows));
}

// True if the factor cannot be intended.
bool is_wrong(const GlobalGradient& gradient, double factor) {
  const auto n = static_cast<double>(gradient.ranks.size());
  if (is_near(factor, 1) || is_sum_of_losses(gradient, factor)) return false;
  if (is_near(factor, n) || is_near(factor, 1 / n)) return true;
  return std::ranges::all_of(gradient.ranks, [](const RankGradient& rank) {
    return rank.is_mean && rank.upstream == 1;  // the program scaled no loss
  });
}

// True if an all-reduce that is neither a sum nor an average moved the gradients.
bool is_reduced_otherwise(const Records& records, const StepRecord& step) {
  return std::ranges::any_of(records.calls, [&](const CallRecord& call) {
    const bool has_moved = std::ranges::any_of(
        step.parameters, [&](const ParameterRecord& p) { return p.moved == call.origin.number; });
    return has_moved && call.origin.process == step.origin.process && !call.is_averaging &&
           call.operation == "all_reduce";
  });
}

std::optional<Finding> judge_step(const Records& records, const Training& training,
                                  std::size_t number) {
  const std::optional<GlobalGradient> gradient = global_gradient(training, number);
  if (!gradient) return {};
  const std::uint64_t step = training.step(0, number).step;
  const auto all_use = [&](const Values& values) {
    return std::ranges::all_of(gradient->ranks, [&](const RankGradient& rank) {
      return gradient->is_close(rank.used, values);
    });
  };
  if (all_use(gradient->mean)) return {};
  const bool are_all_alike = std::ranges::all_of(gradient->ranks, [&](const RankGradient& rank) {
    return gradient->is_close(rank.own, gradient->ranks[0].own);
  });
  for (std::size_t rank = 0; rank < gradient->ranks.size() && !are_all_alike; ++rank) {
    const RankGradient& mine = gradient->ranks[rank];
    const bool is_own =
        mine.num_rows < gradient->num_rows && gradient->is_close(mine.used, mine.own);
    if (!is_own) continue;
    return not_reduced(*gradient, step, rank);
  }
  const Values& used = gradient->ranks[0].used;
  if (const std::optional<double> factor = gradient->factor(used, gradient->mean)) {
    if (!is_wrong(*gradient, *factor)) return {};
    return of_factor(*gradient, step, *factor);
  }
  const auto [least, most] = std::ranges::minmax(gradient->ranks, {}, &RankGradient::weight_of_row);
  if (!is_near(least.weight_of_row, most.weight_of_row)) {
    const std::optional<double> factor = gradient->factor(used, gradient->mean_of_ranks);
    if (factor) return of_weights(*gradient, step, *factor);
  }
  if (!all_use(used) || is_reduced_otherwise(records, training.step(0, number))) {
    return of_no_kind(*gradient, training, number);
  }
  return {};  // all ranks use the same, so the program may have changed it after the average
}

// Finds communication that began before the gradient was there, or that the step did not wait for.
std::optional<Finding> judge_order(const StepRecord& step) {
  for (std::size_t p = 0; p < step.parameters.size(); ++p) {
    const ParameterRecord& parameter = step.parameters[p];
    if (parameter.unfinished != 0) {
      return Finding{
          "awaited-gradients",
          fmt::format("rank {} makes step {} without having waited for the communication "
                      "that moves the gradient of {}",
                      step.origin.rank, step.step, name_of(step, p)),
          "a step uses gradients after their all-reduce is done",
          "keep the Work of an asynchronous call, and wait() for it before the step"};
    }
    if (parameter.moved == 0 || parameter.arrived <= parameter.moved) continue;
    return Finding{
        "complete-gradients",
        fmt::format("in step {} rank {} reduces the gradient of {} before its last backward pass "
                    "has added to it ({} passes)",
                    step.step, step.origin.rank, name_of(step, p), parameter.parts.size()),
        "a gradient is reduced when all that belongs to the step has been added to it",
        "reduce after the last backward pass of the step; in a hook, after the last one that "
        "fires for the parameter"};
  }
  return {};
}

std::optional<Finding> judge_exchange(const Records& records, const Training& training) {
  for (std::size_t number = 0; number < training.num_steps(); ++number) {
    for (std::size_t rank = 0; rank < training.world_size(); ++rank) {
      if (auto finding = judge_order(training.step(rank, number))) return finding;
    }
    if (auto finding = judge_step(records, training, number)) return finding;
  }
  return {};
}

}  // namespace

void judge_gradients(const Records& records, const std::vector<Training>& trainings,
                     Findings& findings) {
  for (const Training& training : trainings) {
    if (training.world_size() == 1) continue;
    if (training.link == Training::Link::exchange) add(judge_exchange(records, training), findings);
    if (training.link == Training::Link::none) add(judge_silence(training), findings);
  }
}

}  // namespace lockstep::doctor
