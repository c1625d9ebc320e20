// What a strategy does in a step, as work on lanes: only step.cpp includes it.
#pragma once

#include <cstddef>
#include <vector>

#include "simulate/predict/kernel_cost.h"
#include "simulate/predict/step.h"
#include "simulate/predict/step_comm.h"

namespace lockstep::predict {

// Puts the work of several steps together, one add_step() after the other. Indices are places in
// work(). network, workload and options must outlive the object.
class StepWork {
 public:
  StepWork(Network& network, const Workload& workload, const StepOptions& options);

  const std::vector<Work>& work() const { return work_; }
  // The last work of each step's compute lane.
  const std::vector<std::size_t>& ends() const { return ends_; }
  double comm_bytes() const { return comm_bytes_; }

  void add_step();

 private:
  struct TensorWork {
    std::size_t layer;
    std::size_t bytes;
  };
  struct CommWork {     // of one bucket or tensor
    std::size_t layer;  // whose backward makes it complete
    std::size_t bytes;
    double seconds;
  };

  std::size_t num_devices() const { return options_.num_devices; }
  std::size_t layer_index(const LayerWork& layer) const;
  double gradient_bytes() const { return static_cast<double>(workload_.gradient_bytes()); }
  const DeviceProfile& device() const { return network_.topology().device; }

  std::size_t add(Work work);
  void prepare();
  void prepare_buckets();

  // Of the kernels that copy gradients into buckets, or back.
  double copy_seconds(const LayerWork& layer) const;
  // Of the optimizer's work on a share of the parameters.
  double optimizer_seconds(double share) const;
  void add_fixed_work();
  void add_replication();
  void add_gather();
  void add_batch();
  void add_forward();
  std::vector<std::size_t> add_backward();  // each layer's work
  // ZeRO (sharded_work.cpp).
  void prepare_shards();
  std::size_t add_gather_of(std::size_t layer, std::vector<std::size_t> after);
  void add_sharded_forward();
  std::vector<std::size_t> add_sharded_backward();
  std::size_t add_scatter_of(std::size_t layer, std::size_t after);
  void update_shards(const std::vector<std::size_t>& backward);
  void share_gradients(const std::vector<std::size_t>& backward);
  void add_optimizer(std::vector<std::size_t> after);
  void reduce_behind(std::size_t last);
  // Up to the host, summed and used there at so many bytes a second, and down again.
  std::size_t pass_host(std::size_t num_bytes, double bytes_per_second, std::size_t after);
  void reduce_on_host(std::size_t last);
  void serve_parameters(const std::vector<std::size_t>& backward);

  Network& network_;
  const Workload& workload_;
  const StepOptions& options_;
  const double layers_beside_;
  std::vector<const char*> names_;
  std::vector<TensorWork> tensors_;  // in the order of registration
  std::vector<CommWork> comm_;
  std::vector<double> share_seconds_;  // ZeRO: by layer, of its reduce-scatter or all-gather
  std::vector<std::size_t> sums_;      // ZeRO-3: the step's reduce-scatters
  Exchange exchange_;
  double comm_bytes_ = 0;
  std::vector<Work> work_;
  std::vector<std::size_t> ends_;
  std::vector<std::size_t> gate_;                  // what the next forward pass waits for
  std::vector<std::vector<std::size_t>> arrived_;  // the same, by layer
};

}  // namespace lockstep::predict
