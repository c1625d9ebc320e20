// The invariants, one function for each kind. Each looks only at the records and adds the
// invariants that are broken; if the records do not say enough, it adds nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/doctor/records.h"

namespace lockstep::doctor {

// An invariant of data-parallel training that a program broke.
struct Finding {
  std::string invariant;  // its name: "mean-gradient"
  std::string found;      // numbers, ranks, step
  std::string expected;   // what should hold
  std::string advice;     // where to look
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, invariant, found, expected, advice)

using Findings = std::vector<Finding>;

inline void add(std::optional<Finding> finding, Findings& findings) {
  if (finding) findings.push_back(*std::move(finding));
}

// Adds the first finding of judge() for any of the items, which stands for all of them.
template <typename Items, typename Judge>
void add_first(const Items& items, const Judge& judge, Findings& findings) {
  for (const auto& item : items) {
    if (std::optional<Finding> finding = judge(item)) return add(std::move(finding), findings);
  }
}

// How the program ended.
enum class End { well, badly };

// same-weights, same-rate, same-buffers
void judge_weights(const std::vector<Training>& trainings, Findings& findings);
// exchanged-gradients, complete-gradients, awaited-gradients, mean-gradient, reduced-gradient,
// equal-rows
void judge_gradients(const Records& records, const std::vector<Training>& trainings,
                     Findings& findings);
// Its exchanged-gradients: models that are equal at first on all ranks of a group, which never
// communicate, and then drift apart silently.
std::optional<Finding> judge_silence(const Training& training);
// own-rows, new-order, own-labels
void judge_rows(const Records& records, const std::vector<Training>& trainings, Findings& findings);
// same-calls, least-bytes
void judge_calls(const Records& records, const std::vector<Training>& trainings, End end,
                 Findings& findings);
// fresh-gradients, stepped-parameters, scheduled-rate, own-device
void judge_steps(const Records& records, const std::vector<Trainer>& trainers,
                 const std::vector<Training>& trainings, Findings& findings);
// loaded-weights, one-writer, wrapped-once, wrapped-last, kept-members
void judge_models(const Records& records, Findings& findings);
// global-loss. output: the program's standard output.
void judge_printed(std::string_view output, const std::vector<Training>& trainings,
                   Findings& findings);

}  // namespace lockstep::doctor
