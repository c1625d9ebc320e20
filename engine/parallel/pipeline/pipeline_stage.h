// Pipeline parallelism: each rank is a stage, which holds one part of the model, or several
// (chunks), and does the work that plan/pipeline.h lists for it.
//
//   forward    takes the activations of the part before, computes, and sends its own on
//   backward   takes the gradient of what it sent, adds to its parameters' gradients, and sends the
//              gradient of what it took back
//
// A micro-batch's loss is summed over its rows and weighed, so gradients add up to those of one
// device, also where micro-batches are uneven. Batch norm in training takes the statistics of a
// micro-batch, as everywhere where a batch is cut.
//
// A parameter that two stages use, such as the table of a GPT, is one on each; they add up their
// gradients, so both make the same step.
//
// Messages go by send() and recv(). A send must not wait for its receiver, since neighbours send to
// each other at the same time: that holds for the project's own communicators, not for NCCL.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/parallel/pipeline/model_parts.h"
#include "engine/plan/pipeline.h"

namespace lockstep::parallel {

// The sum (not the mean) of a loss over the rows of a micro-batch.
using MicroBatchLoss = std::function<Variable(const Variable& output, const Tensor& labels)>;

struct PipelineOptions {
  plan::PipelineSchedule schedule = plan::PipelineSchedule::one_forward_one_backward;
  std::size_t num_micro_batches = 1;
  std::size_t num_chunks = 1;
  // The cost of each layer (layers_of), to cut the model evenly; empty: its number of parameters.
  std::vector<double> layer_costs = {};
};

// The plan, and which layers make each of its parts (plan::balanced_parts).
// Throws Error{Usage} for more parts than layers, and as plan::pipeline_plan().
plan::PipelinePlan pipeline_plan_for(const PipelineOptions& options, std::size_t num_stages,
                                     std::size_t num_layers);

class PipelineStage {
 public:
  using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

  // model: the whole, with the same weights on every rank. What other stages hold is free when the
  // caller lets go of it. REQUIRES: the communicator outlives this.
  // Throws Error{Usage} as pipeline_plan_for().
  PipelineStage(const std::shared_ptr<nn::Module>& model, comm::Communicator& communicator,
                const PipelineOptions& options);

  // The parameters and buffers of this stage, under the model's names.
  const std::shared_ptr<nn::Module>& tensors() const { return tensors_; }
  const plan::PipelinePlan& plan() const { return plan_; }

  // One step of a batch, of which x is used by the first part and labels by the last one: adds the
  // gradients of weight * (summed loss) to the parameters'. Returns the summed loss, the same on
  // every rank. A batch of fewer rows than micro-batches has fewer (fitting_micro_batches).
  // first_row: of the global batch. Every rank calls it. A row always has the same shape, as in
  // evaluate().
  // Throws Error{Shape} on the first stage for another shape.
  Tensor run_step(const Tensor& x, const Tensor& labels, std::size_t first_row, double weight,
                  const MicroBatchLoss& loss);

  // optim::clip_grad_norm_on_device() of all stages' gradients together. Waits for the device.
  // Every rank calls it, and gets the same norm.
  Tensor clip_gradients(double max_norm) const;

  // The model's output in evaluation, on the last stage; undefined on the others. Every rank calls
  // it, and it returns when all have done their part.
  Variable evaluate(const Tensor& x);

  // Returns every stage's tensors, by rank, on rank 0 and in its memory; elsewhere nothing. Every
  // rank calls it.
  std::vector<NamedTensors> gather(const NamedTensors& mine) const;
  // The whole model's state on rank 0, in its order; empty elsewhere. Every rank calls it.
  NamedTensors gather_state() const;

 private:
  // A tensor on its way to the work that needs it.
  struct Message {
    plan::PipelineWork::Pass pass;
    std::size_t part;  // the one that receives it
    std::size_t micro_batch;
    auto operator<=>(const Message&) const = default;
  };
  struct Kept {
    Variable input, output;
  };
  // A parameter that several stages hold.
  struct Shared {
    Variable parameter;
    std::vector<int> stages;
  };
  // The work of a step of so many micro-batches.
  struct Schedule {
    plan::PipelinePlan plan;
    std::vector<std::vector<Message>> incoming;  // [sender][n-th message]
  };
  struct Step;  // the running one

  const Schedule& schedule_for(std::size_t num_micro_batches);
  DType activation_dtype() const;  // of what travels between stages
  Variable run_part(std::size_t part, const Variable& x) const;
  void forward(Step& step, const plan::PipelineWork& work);
  void backward(Step& step, const plan::PipelineWork& work);
  void send(Step& step, const Message& message, const Tensor& tensor);
  Tensor take(Step& step, const Message& message);
  void require_row_shape(const Tensor& x);
  void send_activations(const Tensor& tensor, std::size_t part);
  Tensor receive_activations(std::size_t part, std::size_t num_rows);
  void add_shared_gradients() const;
  Tensor share_loss(const Tensor& loss) const;

  comm::Communicator* communicator_;
  const std::size_t rank_;
  PipelineOptions options_;
  plan::PipelinePlan plan_;
  std::vector<PipelineLayer> chunks_;  // the parts of this stage
  std::shared_ptr<nn::Module> tensors_;
  std::vector<std::string> names_;  // names in the model's state
  std::vector<Shared> shared_;
  Device device_;
  DType dtype_ = DType::float32;
  std::map<std::size_t, Schedule> schedules_;  // keyed by the number of micro-batches
  // By part: the shape of a row of the activations it receives, once the first ones have come.
  std::map<std::size_t, Shape> row_shapes_;
};

}  // namespace lockstep::parallel
