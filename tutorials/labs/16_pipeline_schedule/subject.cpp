#include "tutorials/labs/host/subject.h"
#include <vector>

#include "pipeline_schedule.h"

namespace {

// [["F" or "B", micro-batch], ...]
nlohmann::json listed(const std::vector<lab::Work>& works) {
  nlohmann::json list = nlohmann::json::array();
  for (const lab::Work& work : works) {
    list.push_back({work.pass == lab::Pass::forward ? "F" : "B", work.micro_batch});
  }
  return list;
}

}  // namespace

// inputs: {"stages", "micro_batches"}, and "ahead" for turns(), or "call": "num_ahead". answer: a
// list of works for each stage; one for turns(); the number for each stage.
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  const std::size_t num_stages = inputs.at("stages");
  const std::size_t num_micro_batches = inputs.at("micro_batches");
  if (inputs.contains("ahead")) {
    answer = listed(lab::turns(inputs.at("ahead"), num_micro_batches));
    return;
  }
  answer = nlohmann::json::array();
  for (std::size_t stage = 0; stage < num_stages; ++stage) {
    if (inputs.contains("call")) {
      answer.push_back(lab::num_ahead(stage, num_stages, num_micro_batches));
    } else {
      answer.push_back(listed(lab::one_forward_one_backward(stage, num_stages, num_micro_batches)));
    }
  }
}
