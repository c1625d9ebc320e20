// All ranks call the same collectives in the same order, and no rank sends more than a reduction
// needs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <regex>
#include <sstream>

#include "tools/doctor/judges.h"

namespace lockstep::doctor {

namespace {

using Calls = std::vector<const CallRecord*>;  // in order

// The first call that differs between two ranks.
std::optional<Finding> judge_group(const std::map<int, Calls>& by_rank) {
  const auto& [first_rank, first] = *by_rank.begin();
  for (const auto& [rank, calls] : by_rank) {
    for (std::size_t i = 0; i < std::min(first.size(), calls.size()); ++i) {
      if (first[i]->text == calls[i]->text) continue;
      return Finding{
          "same-calls",
          fmt::format("call #{} of rank {} is {}, and that of rank {} is {}", i, first_rank,
                      first[i]->text, rank, calls[i]->text),
          "all ranks of a group call the same collectives in the same order, with the same sizes",
          "code that only some ranks run, and loops that are longer on one rank"};
    }
  }
  const auto longest = std::ranges::max_element(
      by_rank, {}, [](const auto& of_rank) { return of_rank.second.size(); });
  const auto shortest = std::ranges::min_element(
      by_rank, {}, [](const auto& of_rank) { return of_rank.second.size(); });
  const std::size_t count = shortest->second.size();
  if (longest->second.size() == count || longest->second[count]->is_done) return {};
  return Finding{
      "same-calls",
      fmt::format("rank {} waits in call #{} ({}), which rank {} never makes: it made {} calls",
                  longest->first, count, longest->second[count]->text, shortest->first, count),
      "all ranks of a group make equally many calls",
      "ranks with different numbers of batches, most often a last batch that one of them does not "
      "have, or a rank that returns early"};
}

double gradient_bytes(const StepRecord& step) {
  double count = 0;
  for (const ParameterRecord& parameter : step.parameters) {
    count += static_cast<double>(parameter.num_elements);
  }
  return count * sizeof(float);
}

// Compares messages only; how much a collective sends depends on its plan.
std::optional<Finding> judge_bytes(const Training& training) {
  const auto n = static_cast<double>(training.world_size());
  constexpr double kSlack = 1.25;
  for (std::size_t rank = 0; rank < training.world_size(); ++rank) {
    for (std::size_t number = 0; number < training.num_steps(); ++number) {
      const StepRecord& step = training.step(rank, number);
      const double needed = 2 * (n - 1) / n * gradient_bytes(step);
      if (static_cast<double>(step.sent_bytes) <= kSlack * needed) continue;
      return Finding{
          "least-bytes",
          fmt::format("for step {} rank {} sends {} bytes in messages, {:.2f} times what an "
                      "all-reduce of its {:.0f} bytes of gradients needs among {} ranks",
                      step.step, rank, step.sent_bytes,
                      static_cast<double>(step.sent_bytes) / needed, gradient_bytes(step), n),
          "no rank of a ring sends more than 2(n-1)/n of the buffer",
          "send one chunk of the buffer in each step of the ring, not all of it"};
    }
  }
  return {};
}

}  // namespace

void judge_calls(const Records& records, const std::vector<Training>& trainings, End end,
                 Findings& findings) {
  // If the program ended well, the differences between its ranks were intended.
  if (end == End::badly) {
    std::map<std::string, std::map<int, Calls>> groups;
    for (const CallRecord& call : records.calls) {
      if (!call.is_message) groups[call.origin.group][call.origin.rank].push_back(&call);
    }
    for (auto& [name, by_rank] : groups) {
      for (auto& [rank, calls] : by_rank) {
        std::ranges::sort(calls, {}, [](const CallRecord* call) { return call->sequence; });
      }
      if (std::optional<Finding> finding = judge_group(by_rank)) {
        findings.push_back(*finding);
        break;
      }
    }
  }
  for (const Training& training : trainings) {
    if (training.exchanges()) add(judge_bytes(training), findings);
  }
}

namespace {

constexpr std::size_t kLeastPrinted = 3;  // fewer numbers may agree by chance

struct Printed {
  double value = 0;
  double tolerance = 0;  // half of the last digit
  std::string line;
};

// The numbers after the word "loss", except in lines that name a rank.
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

// The mean over the rows of a step's last backward pass; empty if unknown.
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

// The step of the last printed number, if all are the rank's own losses, in order.
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
