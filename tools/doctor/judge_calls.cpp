// All ranks call the same collectives in the same order, and nobody sends more than a reduction
// needs.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tools/doctor/judges.h"

namespace lockstep::doctor {
namespace {

using Calls = std::vector<const CallRecord*>;  // in order

// The first call that is not the same on two ranks.
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

// By messages; what a collective sends is its plan's business.
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
  // Where the program ended well, it meant what its ranks did.
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

}  // namespace lockstep::doctor
