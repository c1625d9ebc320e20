// One training step on a topology, predicted: how long it takes, and where the time goes.
//
// All devices do the same, so one of them is simulated (lanes.h), and the links are charged with
// the messages of all of them (network.h, all_reduce_cost.h). Three steps are simulated one after
// the other, and the last one is the result, because a step may wait for work that the step before
// left. Cost: linear in layers and buckets; setting up a topology is linear in its devices.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plan/all_reduce_plan.h"
#include "engine/plan/buckets.h"
#include "engine/plan/pipeline.h"
#include "engine/trace/breakdown.h"
#include "simulate/predict/lanes.h"
#include "simulate/predict/network.h"

namespace lockstep::predict {

// How the devices of a step share their gradients: the ways of published tables, and of this
// engine.
enum class Strategy {
  single,         // one device
  data_parallel,  // one process: scatter, replicate, gather; gradients summed on device 0
  cpu_reduce,     // behind the backward pass: gradients to the host, summed and applied there
  cpu_parameter_server,  // the same tensor by tensor, beside the backward and the next forward pass
  device_all_reduce,     // behind the backward pass: each tensor summed on one device, sent back
  // The same tensor by tensor, beside the backward pass; back beside the next forward pass.
  device_parameter_server,
  nccl_replicated,  // an NCCL 1 all-reduce of each tensor, beside the backward pass
  ddp,              // buckets, all-reduced beside the backward pass
  hierarchical,     // the same with the engine's hierarchical plan
  zero1,            // each device updates its share of the parameters, which are then gathered
  zero2,            // the same work: gradients, too, are kept in shares
  zero3,     // parameters, too, are in shares: gathered for each layer's forward and backward pass
  pipeline,  // parts of the model on the devices, through which micro-batches pass
};

std::string_view to_string(Strategy strategy);

// Its devices belong to one process, so they are all in one host.
bool is_of_one_process(Strategy strategy);

// All devices do the same, each on its own rows.
bool is_data_parallel(Strategy strategy);

// As above with '_'; and "dp" for data_parallel, "device_allreduce" for device_all_reduce.
// Throws Error{Usage} that lists the names.
Strategy parse_strategy(std::string_view name);

struct LayerWork {
  std::string name;
  double forward_seconds = 0;
  double backward_seconds = 0;
  std::vector<std::size_t> tensor_bytes = {};  // float32 gradients, in the order of registration
  double output_bytes = 0;                     // its rows' outputs, if known
  // Running statistics, which DDP broadcasts from rank 0 ahead of the forward pass.
  std::vector<std::size_t> buffer_bytes = {};
  // For a batch norm over the rows of all ranks: the float64 sums that they exchange in each pass,
  // and the times of the kernels that make them.
  struct SharedStatistics {
    std::size_t num_bytes = 0;  // each rank's; 0: none
    double forward_seconds = 0;
    double backward_seconds = 0;
  } statistics = {};

  std::size_t gradient_bytes() const;
};

// One device's own work in a step; for a pipeline, the work of all devices on a micro-batch.
// Gradients become ready in the reverse order of layers.
struct Workload {
  std::vector<LayerWork> layers;
  double optimizer_seconds = 0;
  double fixed_seconds = 0;  // whatever the batch: host, launches
  double input_bytes = 0;    // its rows' inputs

  double compute_seconds() const;  // time of a step on one device
  std::size_t gradient_bytes() const;
};

// The same step with `factor` times the rows: forward, backward and input scale, the rest stays.
Workload with_rows(Workload workload, double factor);

// The host of PyTorch's DataParallel: one interpreter, which copies one replica's modules after the
// other, and under its lock launches the forward passes of all replicas in turns. Autograd's
// threads, one for each device, need no interpreter. Source: replicate() and parallel_apply() in
// torch/nn/parallel; PyTorch's DDP tutorial names the lock and the copies as what makes it slow.
struct PythonHost {
  double copy_seconds = 0;     // of one replica's modules
  double forward_seconds = 0;  // until one replica's forward pass has been launched
};

struct StepOptions {
  Strategy strategy = Strategy::ddp;
  std::size_t num_devices = 1;
  std::vector<std::size_t> bucket_byte_limits = {std::size_t{1} << 20, std::size_t{25} << 20};
  std::optional<plan::AllReducePlan> own_plan = {};  // empty: NCCL
  // For a pipeline. parts: its layers, as plan::balanced_parts() returns them; empty: as even in
  // time as the layers allow.
  plan::PipelineSchedule schedule = plan::PipelineSchedule::gpipe;
  std::size_t num_micro_batches = 4;
  std::size_t num_chunks = 1;
  std::vector<std::size_t> parts = {};
  // So many micro-batches, whose workload is given, one after the other; gradients travel beside
  // the last one's backward pass; zero2 and zero3 reduce those of each, and zero3 gathers
  // parameters for each. Not for data_parallel and a pipeline.
  std::size_t num_accumulated = 1;
  // with_last: zero2 and zero3 reduce gradients with the last micro-batch, and keep whole ones
  // until then, as under FSDP's no_sync().
  enum class Reduced { with_each, with_last } reduced = Reduced::with_each;
  // ZeRO: bytes of gathered parameters for each byte of their gradients; 0.5 for bf16 parameters
  // beside gradients that are summed in float32.
  double gathered_share = 1;
  // A kernel copies each gradient into its bucket, and one back: PyTorch's DDP without
  // gradient_as_bucket_view. The engine's own gradients are made in their buckets.
  enum class Gradients { in_buckets, copied } gradients = Gradients::in_buckets;
  // Off: gradients leave when the whole backward pass is over, and the parameters of zero1 and
  // zero2 have all been gathered before the forward pass begins. Not for zero3 and a pipeline.
  enum class Overlap { on, off } overlap = Overlap::on;
  // For data_parallel: PyTorch's, whose parameters and gradients travel by NCCL's broadcasts and
  // reductions. Empty: the engine's, whose replicas' threads share no lock, and which copies.
  std::optional<PythonHost> python = {};
};

struct PredictedStep {
  double step_seconds = 0;
  trace::StepBreakdown breakdown;    // adds up to it; `wait` is for the slowest device
  double busy_fraction = 0;          // share of the step that a device computes
  double comm_bytes_per_device = 0;  // that the device which sends most sends
  std::vector<Work> work;            // the last simulated step's, which begins at 0
  std::vector<DoneWork> times;
};

PredictedStep predict_step(Network& network, const Workload& workload, const StepOptions& options);

// The expected k-th smallest of n normal deviates (k = 1 ... n), in standard deviations; the
// largest is 0 for 1, 0.59 for 2, 1.43 for 8. Source: Blom's approximation, the (k - 0.375) / (n +
// 0.25) quantile.
double expected_deviate(std::size_t k, std::size_t n);
inline double expected_largest_deviate(std::size_t n) {
  return expected_deviate(n, n);
}

// How many times its usual time the device at place i of n (from 0) takes for a kernel: 1 for one
// device; the slowest of n as above. The assignment to devices is arbitrary, but always the same.
double device_slowness(std::size_t i, std::size_t n);

// --- a pipeline: the devices hold parts of the model one behind the other (plan/pipeline.h), and
// micro-batches pass through all of them, forward and back

// Throws Error{Usage} for more devices than layers.
void require_layer_for_each(std::size_t num_devices, std::size_t num_layers);

// predict_step() calls this for a pipeline. workload: of a micro-batch. Parts wait for each other's
// activations and gradients, which cross the links between them; the breakdown is the mean over the
// devices, and its `wait` is what they wait for each other. A part is updated when the last
// micro-batch has come back to it. Throws Error{Usage} for more devices than layers.
PredictedStep predict_pipeline(Network& network, const Workload& workload,
                               const StepOptions& options);

}  // namespace lockstep::predict
