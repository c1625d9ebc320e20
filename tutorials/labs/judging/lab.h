// A lab as the grader knows it: its checks, what each is worth, and what the right answer is.
//
// Verdicts are made here, in the grader's process: a submission gets inputs and gives values back,
// and whatever it prints or claims, they are compared with what this code computes.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/core/rng.h"

namespace lab {

using nlohmann::json;

struct Played;  // puzzles/rules.h

// visible: the student runs it, too; its inputs are fixed. hidden: its inputs are drawn from the
// teacher's secret, so that no table of answers passes it.
enum class Shown { visible, hidden };

// Says what is wrong with the answer to one case, in a line: "rank 1, element 2: expected 9, found
// 6"; empty if it is right. May throw for an answer of another form.
using Judge = std::function<std::string(const json& inputs, const json& answer)>;

struct Check {
  std::string name;  // once in its lab: "two_ranks_hold_the_sum"
  Shown shown = Shown::visible;
  int points = 0;
  std::string hint;  // the mistake that is most often behind a failure

  // The inputs of each case; at least one.
  std::function<std::vector<json>(lockstep::Rng&)> draw;

  Judge judge;

  // Says what an answer that passes has reached, in a line: "12 ms, as the best known".
  Judge reached = {};
  // A puzzle: plays the schedule that the answer is, right or wrong.
  std::function<Played(const json& inputs, const json& answer)> play = {};
};

// Visible checks of one case, or of several.
Check visible(std::string name, int points, std::string hint, const json& inputs, Judge judge);
Check visible(std::string name, int points, std::string hint, std::vector<json> cases, Judge judge);
// A hidden check of so many drawn cases.
Check hidden(std::string name, int points, std::string hint, int count,
             std::function<json(lockstep::Rng&)> draw, Judge judge);

struct Lab {
  std::string folder;  // "05_naive_all_reduce"; the source is naive_all_reduce.cpp
  std::string title;
  std::vector<Check> checks;

  std::string name() const { return folder.substr(3); }
  bool is_puzzle() const { return folder.starts_with('p'); }
  // The module in lab_host that runs it: lab_NAME.so.
  std::string module() const { return is_puzzle() ? "puzzle" : folder; }
};

// In the order of their numbers, then the puzzles.
const std::vector<Lab>& all_labs();

// One function for each lab, in NN_name/judge.cpp.
Lab linear_backward_lab();
Lab cross_entropy_lab();
Lab scatter_plan_lab();
Lab replicate_backward_lab();
Lab naive_all_reduce_lab();
Lab ring_all_reduce_lab();
Lab ring_plan_lab();
Lab bucket_plan_lab();
Lab hook_order_lab();
Lab distributed_sampler_lab();
Lab no_sync_lab();
Lab alpha_beta_lab();
Lab fold_patches_lab();
Lab attention_backward_lab();
Lab sharded_step_lab();
Lab pipeline_schedule_lab();

// The puzzles, in puzzles/judge.cpp.
std::vector<Lab> puzzles();

}  // namespace lab
