#include "tutorials/labs/host/subject.h"
#include "ring_plan.h"

// inputs: {"ranks", "elements"}. answer: a list of steps, each a list of
// [from, to, offset, count, "add" or "copy"].
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  answer = nlohmann::json::array();
  for (const auto& step : lab::ring_plan(inputs.at("ranks"), inputs.at("elements")).steps) {
    nlohmann::json transfers = nlohmann::json::array();
    for (const auto& transfer : step.transfers) {
      transfers.push_back({transfer.from_rank, transfer.to_rank, transfer.chunk.offset,
                           transfer.chunk.count,
                           transfer.combine == lockstep::plan::Combine::add ? "add" : "copy"});
    }
    answer.push_back(transfers);
  }
}
