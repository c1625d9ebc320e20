#include <vector>

#include "bucket_plan.h"
#include "tutorials/labs/host/subject.h"

// inputs: {"num_bytes", "byte_limits"}. answer: a list of lists of parameters.
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  const auto num_bytes = inputs.at("num_bytes").get<std::vector<std::size_t>>();
  const auto byte_limits = inputs.at("byte_limits").get<std::vector<std::size_t>>();
  answer = lab::bucket_plan(num_bytes, byte_limits);
}
