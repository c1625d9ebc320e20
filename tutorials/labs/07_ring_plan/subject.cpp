#include "tutorials/labs/host/subject.h"
#include "ring_plan.h"

// inputs: {"ranks", "elements"} and perhaps "half": which of the plan. answer: a list of steps,
// each a list of [from, to, offset, count, "add" or "copy"].
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  const int ranks = inputs.at("ranks");
  const std::size_t elements = inputs.at("elements");
  const std::string half = inputs.value("half", "");
  answer = nlohmann::json::array();
  for (const auto& step : half == "reduce_scatter" ? lab::reduce_scatter_steps(ranks, elements)
                          : half == "all_gather"   ? lab::all_gather_steps(ranks, elements)
                                                   : lab::ring_plan(ranks, elements).steps) {
    nlohmann::json transfers = nlohmann::json::array();
    for (const auto& transfer : step.transfers) {
      transfers.push_back({transfer.from_rank, transfer.to_rank, transfer.chunk.offset,
                           transfer.chunk.count,
                           transfer.combine == lockstep::plan::Combine::add ? "add" : "copy"});
    }
    answer.push_back(transfers);
  }
}
