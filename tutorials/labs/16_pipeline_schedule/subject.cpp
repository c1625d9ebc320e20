#include "tutorials/labs/host/subject.h"
#include "pipeline_schedule.h"

// inputs: {"stages", "micro_batches"}. answer: a list for each stage, of ["F" or "B", micro-batch].
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  const std::size_t num_stages = inputs.at("stages");
  answer = nlohmann::json::array();
  for (std::size_t stage = 0; stage < num_stages; ++stage) {
    nlohmann::json works = nlohmann::json::array();
    for (const lab::Work& work :
         lab::one_forward_one_backward(stage, num_stages, inputs.at("micro_batches"))) {
      works.push_back({work.pass == lab::Pass::forward ? "F" : "B", work.micro_batch});
    }
    answer.push_back(works);
  }
}
