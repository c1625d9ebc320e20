// Optimizers change parameters by their gradients, with one kernel call for all parameters of a
// device that have the same weight decay: SGD and AdamW, and their common base.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/autograd/variable.h"
#include "kernels/calls.h"

namespace lockstep::optim {

// Parameters with one weight_decay. Source: PyTorch's param_groups.
struct ParameterGroup {
  std::vector<Variable> parameters;
  double weight_decay = 0;
};

// Two groups: parameters of two or more dimensions, and vectors, which do not decay.
// Source: nanoGPT, configure_optimizers.
std::vector<ParameterGroup> decay_groups(const std::vector<Variable>& parameters,
                                         double weight_decay);

// Parameters without a gradient are skipped and keep their state, as in PyTorch. State follows a
// parameter to another device or dtype. The learning rate and the number of steps live in the
// devices' memory, where a captured graph finds them.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  void step();
  // Forgets all gradients (PyTorch's set_to_none=True).
  void zero_grad();

  const char* name() const { return name_; }
  std::size_t num_states() const { return num_states_; }  // tensors kept for each parameter
  double learning_rate() const { return learning_rate_; }
  // Applies from the next step(). Throws Error{Usage} if negative or not a number.
  void set_learning_rate(double learning_rate);

  // For a step() that was captured in a graph. write_learning_rate() comes before a launch, and
  // writes a changed learning rate into the devices' memory; count_replayed_step() comes after it,
  // and counts the step that the graph made.
  void write_learning_rate();
  void count_replayed_step();

  // Sorted by group.
  const std::vector<Variable>& parameters() const { return parameters_; }

  // A parameter's state: the number of its steps, and SGD's momentum or AdamW's two moments, in
  // this order; no tensors before its first step.
  struct State {
    std::uint64_t num_steps = 0;
    std::vector<Tensor> tensors;
  };
  // The optimizer's own tensors, not copies.
  State state(std::size_t index) const;
  // Continues from a copy of such a state. Throws Error{Shape} unless there are as many tensors as
  // the optimizer keeps, or none, each as large as the parameter.
  void load_state(std::size_t index, const State& state);

 protected:
  static constexpr std::size_t kMaxState = 2;

  // num_states: how many tensors each parameter has as its state, zeros at first. name appears in
  // errors and traces and must be a literal. Throws Error{Usage} if there are no parameters, one
  // appears twice or is no leaf, or a weight decay or the learning rate is negative.
  Optimizer(const char* name, const std::vector<ParameterGroup>& groups, double learning_rate,
            std::size_t num_states);

  // One kernel call, which also counts the step in scalars. All updates have one device, one dtype,
  // one weight_decay and the same number of steps before.
  using Updates = std::vector<kernels::OptimizerParameter>;
  virtual void update(kernels::Backend& backend, runtime::Stream& stream, const Updates& updates,
                      const kernels::StepScalars& scalars, double weight_decay) = 0;

 private:
  // Parameters that share device, dtype, weight decay and number of steps: normally all of a
  // device, or of a ParameterGroup.
  struct Group {
    Device device;
    DType dtype = DType::float32;
    double weight_decay = 0;
    std::uint64_t num_steps = 0;
    Tensor step;                       // int64 [1]; update() adds 1 to it
    Tensor learning_rate;              // float64 [1]
    double rate_on_device = 0;         // the value in learning_rate
    std::vector<std::size_t> members;  // parameters with a gradient in the latest step()
    Updates updates;                   // the members'
  };

  Group& group_of(std::size_t index);
  void add_update(std::size_t index);
  void write_learning_rate(Group& group) const;
  void count_step(Group& group);

  const char* name_;
  std::vector<Variable> parameters_;
  std::vector<double> weight_decays_;  // per parameter
  double learning_rate_;
  std::size_t num_states_;
  std::vector<std::array<Tensor, kMaxState>>
      states_;                            // per parameter; made with its first gradient
  std::vector<std::uint64_t> num_steps_;  // per parameter
  std::vector<Group> groups_;
};

// Stochastic gradient descent.
struct SgdOptions {
  double learning_rate = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  using Kind = kernels::SgdOptions::Kind;  // plain or nesterov
  Kind kind = Kind::plain;
};

// With gradient g, weight w, momentum buffer v and learning rate lr, per step:
//   g' = g + weight_decay * w
//   v  = g' in the first step, then momentum * v + (1 - dampening) * g'   (if momentum > 0)
//   w  = w - lr * v              plain (g' without momentum)
//   w  = w - lr * (g' + momentum * v)   Nesterov
// Throws Error{Usage} for a negative option, and for Nesterov without momentum or with dampening.
// Source: PyTorch torch.optim.SGD, formulas and defaults.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(std::vector<Variable> parameters, const SgdOptions& options = {});

 private:
  void update(kernels::Backend& backend, runtime::Stream& stream, const Updates& updates,
              const kernels::StepScalars& scalars, double weight_decay) override;

  kernels::SgdOptions options_;
};

// Adam with decoupled weight decay.
struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
};

// In step t = 1, 2, ... with gradient g, weight w and moments m, v (zeros at first):
//   w = w * (1 - lr * weight_decay)
//   m = beta1 * m + (1 - beta1) * g;   v = beta2 * v + (1 - beta2) * g^2
//   w = w - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
// Throws Error{Usage} for a negative option or a beta outside [0, 1).
// Source: PyTorch torch.optim.AdamW, formulas and defaults.
class AdamW final : public Optimizer {
 public:
  explicit AdamW(std::vector<Variable> parameters, const AdamWOptions& options = {});
  // The groups' weight_decay replaces that of the options.
  explicit AdamW(const std::vector<ParameterGroup>& groups, const AdamWOptions& options = {});

 private:
  void update(kernels::Backend& backend, runtime::Stream& stream, const Updates& updates,
              const kernels::StepScalars& scalars, double weight_decay) override;

  kernels::AdamWOptions options_;
};

}  // namespace lockstep::optim
