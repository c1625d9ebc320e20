#include <cstddef>
#include <vector>

#include "hook_order.h"
#include "tutorials/labs/host/subject.h"

// inputs: {"buckets": [[parameter, ...], ...], "passes": [[parameters as they become ready], ...]}.
// answer: for each pass a list of lists: what was launched in each hook, and at last by finish().
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  std::vector<std::size_t> launched;
  lab::Reducer reducer(inputs.at("buckets").get<std::vector<std::vector<std::size_t>>>(),
                       [&](std::size_t bucket) { launched.push_back(bucket); });
  answer = nlohmann::json::array();
  for (const nlohmann::json& pass : inputs.at("passes")) {
    nlohmann::json events = nlohmann::json::array();
    reducer.begin_backward();
    for (const std::size_t parameter : pass) {
      launched.clear();
      reducer.on_ready(parameter);
      events.push_back(launched);
    }
    launched.clear();
    reducer.finish();
    events.push_back(launched);
    answer.push_back(events);
  }
}
