// One training step on a topology, predicted: how long it takes, and where the time goes.
//
// All devices do the same, so one of them is simulated (lanes.h), with the messages of all of them
// charged to the links (network.h, nccl_model.h). Three steps are simulated one after the other,
// and the last one is the result, since a step may wait for what the one before left to do. Cost:
// linear in layers and buckets; setting up a topology is linear in its devices.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/all_reduce_plan.h"
#include "engine/plan/buckets.h"
#include "engine/trace/breakdown.h"
#include "simulate/predict/lanes.h"
#include "simulate/predict/network.h"
#include "simulate/predict/strategy.h"

namespace lockstep::predict {

struct LayerWork {
  std::string name;
  double forward_seconds = 0;
  double backward_seconds = 0;
  std::vector<std::size_t> tensor_bytes = {};  // float32 gradients, in the order of registration
  double output_bytes = 0;                     // of its rows, where that is known

  std::size_t gradient_bytes() const;
};

// What one device does in a step by itself; of a pipeline, what all of them do with a micro-batch.
// Gradients become ready in the reverse order of layers.
struct Workload {
  std::vector<LayerWork> layers;
  double optimizer_seconds = 0;
  double fixed_seconds = 0;  // whatever the batch: host, launches
  double input_bytes = 0;    // of its rows

  double compute_seconds() const;  // of a step on one device
  std::size_t gradient_bytes() const;
};

// The same step with `factor` times the rows: forward, backward and input scale, the rest stays.
Workload with_rows(Workload workload, double factor);

// How much worse, or better, than the constants say: for the uncertainty band.
struct Conditions {
  double comm_latency = 1;  // NCCL's tuning model knows the wire's share of it, not the host's
  double stragglers = 1;
};

struct StepOptions {
  Strategy strategy = Strategy::ddp;
  std::size_t num_devices = 1;
  std::vector<std::size_t> bucket_byte_limits = {std::size_t{1} << 20, std::size_t{25} << 20};
  std::optional<plan::AllReducePlan> own_plan = {};  // empty: NCCL; of a measured machine automatic
  RankKind ranks = RankKind::threads;                // of a measured machine
  std::size_t num_micro_batches = 4;                 // of a pipeline
  // Whether a batch is there when it is needed, or is sent from the host's memory while the step
  // before is computed.
  enum class Input { ready, from_host } input = Input::ready;
  // A kernel copies each gradient into its bucket, and one back: PyTorch's DDP without
  // gradient_as_bucket_view. The engine's own gradients are made in their buckets.
  enum class Gradients { in_buckets, copied } gradients = Gradients::in_buckets;
  Conditions conditions = {};
};

struct PredictedStep {
  double step_seconds = 0;
  trace::StepBreakdown breakdown;    // adds up to it; `wait` is for the slowest device
  double busy_fraction = 0;          // of a device: it computes
  double comm_bytes_per_device = 0;  // that the device which sends most sends
  std::vector<Work> work;            // of the last simulated step, which begins at 0
  std::vector<DoneWork> times;
};

PredictedStep predict_step(Network& network, const Workload& workload, const StepOptions& options);

// The expected k-th smallest of n normal deviates (k = 1 ... n), in standard deviations; of the
// largest 0 for 1, 0.59 for 2, 1.43 for 8. Source: Blom's approximation, the
// (k - 0.375) / (n + 0.25) quantile.
double expected_deviate(std::size_t k, std::size_t n);
inline double expected_largest_deviate(std::size_t n) {
  return expected_deviate(n, n);
}

// How many times its usual time the device that is in place i of n (from 0) takes for a kernel:
// 1 for one device; the slowest of n as above. Which one that is, is arbitrary, and always the
// same.
double device_slowness(const DeviceProfile& device, std::size_t i, std::size_t n);

}  // namespace lockstep::predict
