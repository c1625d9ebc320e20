// Each strategy's step as work on lanes, which step.cpp runs.
#pragma once

#include <cstddef>
#include <vector>

#include "simulate/predict/kernel_cost.h"
#include "simulate/predict/network.h"
#include "simulate/predict/step.h"

namespace lockstep::predict {

// The traffic of strategies, except all-reduces.
struct Exchange {
  double reduce_seconds = 0;
  double broadcast_seconds = 0;
  double bytes_of_busiest = 0;  // sent by the device that sends most
};

// Each tensor is summed on one device and sent back from there. Tensors go, largest first, to the
// device that has the least so far, so one link carries a tensor that is most of the model.
// Source: CommDevice of MXNet's src/kvstore/comm.h.
Exchange reduce_on_devices(Network& network, std::size_t num_devices,
                           std::vector<std::size_t> tensor_bytes);

// DataParallel: all devices send their gradients to device 0, which adds each tensor with a kernel
// once it has arrived. Parameters go back with the next step's rows, not here.
Exchange reduce_on_first(Network& network, std::size_t num_devices,
                         const std::vector<std::size_t>& tensor_bytes);

// PyTorch's DataParallel: NCCL broadcasts the parameters from device 0 and sums the gradients
// there, behind a kernel that copies them into one buffer. Source: broadcast_coalesced and
// reduce_add_coalesced in torch/nn/parallel/comm.py.
Exchange rooted_exchange(Network& network, std::size_t num_devices, double num_bytes);

// Every device sends num_bytes to its host's memory (up), or receives them from there.
enum class HostWay { up, down };
double host_seconds(Network& network, std::size_t num_devices, double num_bytes, HostWay way);

// The host, at so many bytes of memory traffic per second, adds n gradients: it reads them and
// writes the sum, whose lines it reads first.
double host_sum_seconds(double host_bytes_per_second, std::size_t num_devices, double num_bytes);

// It also applies them: SGD with momentum as two passes, each of which reads three arrays and
// writes one: nine times the bytes, including the lines that are read before they are written.
double host_update_seconds(double host_bytes_per_second, double num_bytes);

// Collects the work of several steps, one add_step() after the other. Indices are places in work().
// network, workload and options must outlive the object.
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
  struct CommWork {     // one bucket or tensor on its way
    std::size_t layer;  // the layer whose backward pass completes it
    std::size_t bytes;
    double seconds;
  };

  std::size_t num_devices() const { return options_.num_devices; }
  bool has_buckets() const;  // true if several devices all-reduce buckets
  std::size_t layer_index(const LayerWork& layer) const;
  double gradient_bytes() const { return static_cast<double>(workload_.gradient_bytes()); }
  const DeviceProfile& device() const { return network_.topology().device; }

  using Places = std::vector<std::size_t>;

  std::size_t add(Work work);
  std::size_t compute(trace::Category category, const char* name, double seconds, Places after);
  std::size_t communicate(WorkLane lane, const char* name, double seconds, std::size_t num_bytes,
                          Places after);
  std::size_t copy_down(const char* name, double seconds, std::size_t num_bytes);  // after gate_
  void prepare();
  void prepare_buckets();

  // Time of the kernels that copy gradients into buckets, or back.
  double copy_seconds(const LayerWork& layer) const;
  // Time of the optimizer's work on a share of the parameters.
  double optimizer_seconds(double share) const;
  void add_fixed_work();
  void add_replication();
  bool has_python() const {
    return options_.python && options_.strategy == Strategy::data_parallel && num_devices() > 1;
  }
  void add_gather();
  void add_buffers();
  // Ranks exchange the sums of a batch norm, which takes so many seconds to make; returns the work
  // to wait for.
  Places exchange_statistics(std::size_t layer, trace::Category category, Places after);
  void add_forward();
  Places add_backward();  // each layer's work
  // The backward pass's part of its time that is left if the forward pass, on one device too, takes
  // as long as its launches: a measured step is known only as a whole.
  double backward_share() const;
  // --- ZeRO ---
  bool has_shards() const;
  bool overlaps_shards() const;
  // True if no whole gradients are kept, so that each micro-batch's are reduced at once.
  bool reduces_each_batch() const;
  void prepare_shards();
  std::size_t add_gather_of(std::size_t unit, Places after);
  void add_sharded_forward();
  enum class Gradients { reduced, kept };
  void add_sharded_backward(Gradients gradients);
  void update_shards();
  void share_gradients(const Places& backward);
  void add_optimizer(Places after);
  void reduce_behind(std::size_t last);
  // Up to the host, summed and used there at so many bytes per second, and down again.
  std::size_t pass_host(std::size_t num_bytes, double bytes_per_second, std::size_t after);
  void reduce_on_host(std::size_t last);
  void serve_parameters(const Places& backward);
  void serve_from_devices(const Places& backward);

  Network& network_;
  const Workload& workload_;
  const StepOptions& options_;
  std::vector<const char*> names_;
  std::vector<TensorWork> tensors_;  // in the order of registration
  std::vector<CommWork> comm_;
  struct Unit {              // ZeRO: layers whose parameters are gathered together
    std::size_t begin, end;  // layers
    std::size_t bytes = 0;
    double gather_seconds = 0;
    double scatter_seconds = 0;
  };
  std::vector<Unit> units_;
  std::vector<std::size_t> sums_;  // ZeRO: the step's reduce-scatters
  Exchange exchange_;
  double comm_bytes_ = 0;
  std::vector<Work> work_;
  std::vector<std::size_t> ends_;
  std::vector<std::size_t> gate_;                  // the next forward pass waits for this work
  std::vector<std::vector<std::size_t>> arrived_;  // the same, by layer
};

}  // namespace lockstep::predict
