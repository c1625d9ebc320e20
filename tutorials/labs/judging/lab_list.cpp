#include <utility>

#include "tutorials/labs/judging/lab.h"

namespace lab {

Check visible(std::string name, int points, std::string hint, const json& inputs, Judge judge) {
  return visible(std::move(name), points, std::move(hint), std::vector<json>{inputs},
                 std::move(judge));
}

Check visible(std::string name, int points, std::string hint, std::vector<json> cases,
              Judge judge) {
  const auto draw = [cases = std::move(cases)](lockstep::Rng&) { return cases; };
  return {std::move(name), Shown::visible, points, std::move(hint), draw, std::move(judge)};
}

Check hidden(std::string name, int points, std::string hint, int count,
             std::function<json(lockstep::Rng&)> draw, Judge judge) {
  const auto draw_all = [count, draw = std::move(draw)](lockstep::Rng& rng) {
    std::vector<json> cases;
    for (int i = 0; i < count; ++i) cases.push_back(draw(rng));
    return cases;
  };
  return {std::move(name), Shown::hidden, points, std::move(hint), draw_all, std::move(judge)};
}

const std::vector<Lab>& all_labs() {
  static const std::vector<Lab> all = [] {
    std::vector<Lab> labs = {linear_backward_lab(),  cross_entropy_lab(),
                             scatter_plan_lab(),     replicate_backward_lab(),
                             naive_all_reduce_lab(), ring_all_reduce_lab(),
                             ring_plan_lab(),        bucket_plan_lab(),
                             hook_order_lab(),       distributed_sampler_lab(),
                             no_sync_lab(),          alpha_beta_lab(),
                             fold_patches_lab(),     attention_backward_lab(),
                             sharded_step_lab(),     pipeline_schedule_lab()};
    for (Lab& puzzle : puzzles()) labs.push_back(std::move(puzzle));
    return labs;
  }();
  return all;
}

}  // namespace lab
