#include <string>

#include "alpha_beta.h"
#include "tutorials/labs/host/subject.h"

// inputs: {"call": which function, "ranks", "bytes", "latency", "bandwidth"}. answer: a number.
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  const lab::Link link{inputs.at("latency"), inputs.at("bandwidth")};
  const int ranks = inputs.at("ranks");
  const std::string call = inputs.at("call");
  if (call == "break_even") {
    answer = lab::break_even_bytes(ranks, link);
  } else if (call == "naive") {
    answer = lab::naive_seconds(ranks, inputs.at("bytes"), link);
  } else {
    answer = lab::ring_seconds(ranks, inputs.at("bytes"), link);
  }
}
