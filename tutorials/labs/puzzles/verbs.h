// A schedule as a value: what each GPU was told to do (schedule.h), in order.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tutorials/labs/schedule.h"

namespace lab {

enum class Op {
  load,
  forward,
  backward,
  all_reduce,
  reduce_scatter,
  all_gather,
  wait,
  update,
  free_parameters,
  free_gradient,
  free_activation,
  send_activation,
  receive_activation,
  send_gradient,
  receive_gradient,
};

// In JSON: [op, layer, micro_batch, other].
struct Verb {
  Op op = Op::load;
  int layer = -1;  // of wait: that of its collective
  int micro_batch = -1;
  int other = -1;  // load: what to keep; wait: the number of the work; messages: the other rank

  bool sends() const { return op == Op::send_activation || op == Op::send_gradient; }
  bool receives() const { return op == Op::receive_activation || op == Op::receive_gradient; }
  bool moves_activation() const {
    return op == Op::send_activation || op == Op::receive_activation;
  }
  bool is_message() const { return sends() || receives(); }
  bool has_micro_batch() const {
    return op == Op::forward || op == Op::backward || op == Op::free_activation || is_message();
  }
};

inline constexpr std::size_t kMostVerbs = 20'000;  // of one GPU

// "all_gather".
const char* name_of(Op op);
// "forward(2, 0)", "all_gather(3)", "wait(all_gather(3))".
std::string to_string(const Verb& verb);

using Programs = std::vector<std::vector<Verb>>;  // by rank

// The sizes of a case. Time and memory are those of layers of width x width float32 parameters with
// rows_per_micro_batch rows.
struct PuzzleSizes {
  int num_gpus = 1;
  int num_layers = 1;
  int num_micro_batches = 1;
  int width = 4096;
  int rows = 512;            // of a micro-batch
  bool is_pipeline = false;  // each layer is on one GPU

  std::size_t parameter_bytes() const { return 4 * std::size_t(width) * std::size_t(width); }
  std::size_t activation_bytes() const { return 4 * std::size_t(width) * std::size_t(rows); }
};

nlohmann::json to_json(const PuzzleSizes& sizes);
PuzzleSizes sizes_of(const nlohmann::json& inputs);

// Throws std::exception for JSON that is no schedule.
Programs programs_of(const nlohmann::json& answer);

}  // namespace lab
