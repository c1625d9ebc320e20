#include "tutorials/labs/puzzles/verbs.h"

#include <fmt/format.h>

#include <array>
#include <stdexcept>

namespace lab {
namespace {

constexpr std::array kNames = {"load",
                               "forward",
                               "backward",
                               "all_reduce",
                               "reduce_scatter",
                               "all_gather",
                               "wait",
                               "update",
                               "free_parameters",
                               "free_gradient",
                               "free_activation",
                               "send_activation",
                               "receive_activation",
                               "send_gradient",
                               "receive_gradient"};

std::vector<Verb> program_of(const nlohmann::json& list) {
  if (list.size() > kMostVerbs) throw std::runtime_error("too many calls");
  std::vector<Verb> program;
  for (const nlohmann::json& item : list) {
    const int op = item.at(0);
    if (op < 0 || op >= int(kNames.size())) throw std::runtime_error("unknown call");
    program.push_back({Op(op), item.at(1), item.at(2), item.at(3)});
  }
  return program;
}

}  // namespace

const char* name_of(Op op) {
  return kNames.at(std::size_t(op));
}

std::string to_string(const Verb& verb) {
  const char* const name = name_of(verb.op);
  if (verb.has_micro_batch()) return fmt::format("{}({}, {})", name, verb.layer, verb.micro_batch);
  return fmt::format("{}({})", name, verb.layer);
}

nlohmann::json to_json(const PuzzleSizes& sizes) {
  return {{"gpus", sizes.num_gpus},
          {"layers", sizes.num_layers},
          {"micro_batches", sizes.num_micro_batches},
          {"width", sizes.width},
          {"rows", sizes.rows},
          {"is_pipeline", sizes.is_pipeline}};
}

PuzzleSizes sizes_of(const nlohmann::json& inputs) {
  return {inputs.at("gpus"),  inputs.at("layers"), inputs.at("micro_batches"),
          inputs.at("width"), inputs.at("rows"),   inputs.at("is_pipeline")};
}

Programs programs_of(const nlohmann::json& answer) {
  Programs programs;
  for (const nlohmann::json& list : answer) programs.push_back(program_of(list));
  return programs;
}

}  // namespace lab
