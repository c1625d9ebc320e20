// The invariants, one function for each kind. Each looks at records alone and adds what is broken;
// where the records do not say enough it adds nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/doctor/finding.h"
#include "tools/doctor/trainings.h"

namespace lockstep::doctor {

// How the program ended.
enum class End { well, badly };

// same-weights, same-rate, same-buffers
void judge_weights(const std::vector<Training>& trainings, Findings& findings);
// exchanged-gradients, complete-gradients, awaited-gradients, mean-gradient, reduced-gradient,
// equal-rows
void judge_gradients(const Records& records, const std::vector<Training>& trainings,
                     Findings& findings);
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
// global-loss. output: what the program printed.
void judge_printed(std::string_view output, const std::vector<Training>& trainings,
                   Findings& findings);

}  // namespace lockstep::doctor
