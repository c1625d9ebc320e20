// An optimizer's step, with all that led to it: the event "step".
//
// Of each parameter: hashes of its weight before and after, the sketch of the gradient that was
// used and of what each backward pass of this rank had made of it, and which communication moved
// it since the step before. So the records of all ranks say whether the gradient was that of all
// their rows (tools/doctor).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/audit/values.h"

namespace lockstep::audit {

// Where the values are not the CPU's, the views are empty.
struct SteppedParameter {
  const void* leaf = nullptr;  // Variable::identity()
  std::string shape;
  std::size_t num_elements = 0;
  bool has_gradient = false;
  ConstTensorView value;
  ConstTensorView gradient;
};

struct Step {
  const void* optimizer = nullptr;
  double learning_rate = 0;
  std::string device;  // of the first parameter
  std::vector<SteppedParameter> parameters;
};

// A new optimizer, maybe at the address of one that is gone.
void note_optimizer(const void* optimizer);
// Gradients of this line of work were scaled down.
void note_clipping();
// The running statistics with which a layer in training begins its forward pass.
void note_buffer(ConstTensorView buffer);

// Around the step: what it finds, and when it ends what it has made.
class StepScope {
 public:
  explicit StepScope(Step step);
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  void add_pass(std::uint64_t pass);

  Step step_;
  std::uint64_t optimizer_ = 0;  // its number
  std::uint64_t number_ = 0;     // of its steps, from 0
  std::uint64_t since_ = 0;      // number of the event of the step before
  bool is_told_ = true;          // later steps are told now and then
  std::string parameters_;       // JSON
  std::string losses_;
  std::string reached_;
};

}  // namespace lockstep::audit
