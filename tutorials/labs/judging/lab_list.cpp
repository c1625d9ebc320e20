#include "tutorials/labs/judging/lab.h"

namespace lab {

const std::vector<Lab>& all_labs() {
  static const std::vector<Lab> labs = {linear_backward_lab(),  cross_entropy_lab(),
                                        scatter_plan_lab(),     replicate_backward_lab(),
                                        naive_all_reduce_lab(), ring_all_reduce_lab(),
                                        ring_plan_lab(),        bucket_plan_lab(),
                                        hook_order_lab(),       distributed_sampler_lab(),
                                        no_sync_lab(),          alpha_beta_lab(),
                                        fold_patches_lab(),     attention_backward_lab(),
                                        sharded_step_lab(),     pipeline_schedule_lab()};
  return labs;
}

}  // namespace lab
