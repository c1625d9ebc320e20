// A loss that is printed as that of the run is the mean over the rows of all ranks.
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <regex>
#include <sstream>

#include "tools/doctor/judges.h"

namespace lockstep::doctor {
namespace {

constexpr std::size_t kLeastPrinted = 3;  // fewer numbers may agree by chance

struct Printed {
  double value = 0;
  double tolerance = 0;  // half of the last digit
  std::string line;
};

// The numbers behind the word "loss", without lines that name a rank.
std::vector<Printed> find_losses(std::string_view output) {
  static const std::regex kLoss(R"(\bloss\b[ :=]*([0-9]+\.([0-9]+))(?![0-9]))",
                                std::regex::icase | std::regex::optimize);
  std::vector<Printed> losses;
  std::istringstream lines{std::string(output)};
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (line.find("rank") != std::string::npos || line.size() > 500) continue;
    if (!std::regex_search(line, match, kLoss)) continue;
    const auto digits = static_cast<double>(match[2].length());
    losses.push_back({std::stod(match[1]), 0.51 * std::pow(10, -digits), line});
  }
  return losses;
}

// The mean over the rows of a step's last backward pass; nothing where it is not known.
std::optional<double> mean_loss(const StepRecord& step) {
  if (step.passes.empty() || step.passes.rbegin()->second.size() != 1) return {};
  const LossRecord& loss = step.passes.rbegin()->second.front();
  if (!std::isfinite(loss.value) || loss.num_rows == 0) return {};
  return loss.is_mean ? loss.value : loss.value / static_cast<double>(loss.num_rows);
}

std::optional<double> global_loss(const Training& training, std::size_t number) {
  double sum = 0, count = 0;
  for (std::size_t rank = 0; rank < training.world_size(); ++rank) {
    const StepRecord& step = training.step(rank, number);
    const std::optional<double> mean = mean_loss(step);
    if (!mean) return {};
    const auto rows = static_cast<double>(step.passes.rbegin()->second.front().num_rows);
    sum += *mean * rows;
    count += rows;
  }
  return sum / count;
}

// The step of the last printed number, where all are the rank's own losses, in order.
std::optional<std::size_t> match(const std::vector<Printed>& printed, const Training& training,
                                 std::size_t rank) {
  std::size_t number = 0;
  for (const Printed& loss : printed) {
    for (;; ++number) {
      if (number == training.num_steps()) return {};
      const std::optional<double> own = mean_loss(training.step(rank, number));
      const std::optional<double> global = global_loss(training, number);
      if (!own || !global) return {};
      const bool is_own = std::abs(*own - loss.value) <= loss.tolerance;
      if (is_own && std::abs(*global - loss.value) > 2 * loss.tolerance) break;
    }
    ++number;
  }
  return number - 1;
}

}  // namespace

void judge_printed(std::string_view output, const std::vector<Training>& trainings,
                   Findings& findings) {
  const std::vector<Printed> printed = find_losses(output);
  if (printed.size() < kLeastPrinted) return;
  for (const Training& training : trainings) {
    if (!training.exchanges()) continue;
    for (std::size_t rank = 0; rank < training.world_size(); ++rank) {
      const std::optional<std::size_t> number = match(printed, training, rank);
      if (!number) continue;
      findings.push_back(
          {"global-loss",
           fmt::format("all {} printed losses are rank {}'s own: \"{}\" is the mean over its rows "
                       "of step {}; over the rows of all {} ranks it is {:.4f}",
                       printed.size(), rank, printed.back().line, training.step(rank, *number).step,
                       training.world_size(), *global_loss(training, *number)),
           "a loss that is logged for the run is the mean over the rows of all ranks",
           "all-reduce the sum of the losses and the number of rows before rank 0 prints, or say "
           "whose loss it is"});
      return;
    }
  }
}

}  // namespace lockstep::doctor
