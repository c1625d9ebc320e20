// Optimizer: changes parameters by their gradients, all parameters of a device in one kernel call.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/autograd/variable.h"
#include "kernels/backend.h"

namespace lockstep::optim {

// Parameters without a gradient are skipped and keep their state, as in PyTorch. State follows a
// parameter that moves to another device or dtype. The learning rate and the number of steps live
// in the devices' memory, where a captured graph finds them.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  void step();
  // Forgets all gradients (PyTorch's set_to_none=True).
  void zero_grad();

  double learning_rate() const { return learning_rate_; }
  // Takes effect with the next step(). Throws Error{Usage} if negative or not a number.
  void set_learning_rate(double learning_rate);

  // For a step() that was captured in a graph. Before the graph is launched: writes a learning rate
  // that changed into the devices' memory. After it: counts the step that the graph made, which
  // nobody called here.
  void write_learning_rate();
  void count_replayed_step();

  const std::vector<Variable>& parameters() const { return parameters_; }

 protected:
  static constexpr std::size_t kMaxState = 2;
  using State = std::array<Tensor, kMaxState>;

  // How many state tensors each parameter has, and whether they must start as zeros.
  enum class InitialState { uninitialised, zeros };
  struct StateLayout {
    std::size_t count = 0;
    InitialState initial = InitialState::zeros;
  };

  // name is used in errors and traces and must be a literal. Throws Error{Usage} if parameters is
  // empty, one stands twice or does not require a gradient, or the learning rate is negative.
  Optimizer(const char* name, std::vector<Variable> parameters, double learning_rate,
            StateLayout layout);

  // A parameter to change. state has layout.count views.
  struct Update {
    TensorView weight;
    ConstTensorView grad;
    std::array<TensorView, kMaxState> state;
  };
  // One kernel call, which counts the step in scalars, too: all updates are of one device and one
  // dtype and have seen equally many steps.
  virtual void update(kernels::Backend& backend, runtime::Stream& stream,
                      const std::vector<Update>& updates, const kernels::StepScalars& scalars) = 0;

 private:
  // Parameters that share device, dtype and number of steps seen: normally all of a device.
  struct Group {
    Device device;
    DType dtype = DType::float32;
    std::uint64_t num_steps = 0;
    enum class Gradients { absent, present } gradients = Gradients::present;
    std::vector<std::size_t> members;
    Tensor step;            // int64 [1]; update() adds 1 to it
    Tensor learning_rate;   // float64 [1]
    double rate_on_device;  // what learning_rate holds
  };

  bool groups_fit() const;
  void regroup();
  void prepare(Group& group);
  void run(Group& group);
  void write_learning_rate(Group& group) const;

  const char* name_;
  std::vector<Variable> parameters_;
  double learning_rate_;
  StateLayout layout_;
  std::vector<State> states_;             // per parameter; made with its first gradient
  std::vector<std::uint64_t> num_steps_;  // per parameter
  std::vector<Group> groups_;
  std::vector<Update> updates_;  // kept for its memory
};

}  // namespace lockstep::optim
