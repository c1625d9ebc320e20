#include "tutorials/labs/host/subject.h"

#include <algorithm>
#include <string>
#include <vector>

#include "sharded_step.h"
#include "tutorials/labs/host/group.h"

// inputs: {"call": which function, "buffers"; for a step "weights" and "learning_rate"}. answer: as
// run_group; after a step the buffers are the weights.
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  const std::string call = inputs.at("call");
  const auto step = [&](lab::Rank& rank, std::span<double> gradients) {
    auto weights = inputs.at("weights").get<std::vector<double>>();
    lab::sharded_step(rank, weights, gradients, inputs.at("learning_rate"));
    std::ranges::copy(weights, gradients.begin());
  };
  const lab::RankFunction function = call == "reduce_scatter" ? lab::reduce_scatter
                                     : call == "all_gather"   ? lab::all_gather
                                     : call == "all_reduce"   ? lab::all_reduce
                                                              : lab::RankFunction(step);
  answer = lab::run_group(inputs, function);
}
