#include "engine/predict/step.h"

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "engine/predict/all_reduce_cost.h"
#include "engine/predict/step_comm.h"

namespace lockstep::predict {
namespace {

using trace::Category;

constexpr std::size_t kSteps = 3;

// Puts the work of kSteps steps together. Indices are places in work().
class StepWork {
 public:
  StepWork(Network& network, const Workload& workload, const StepOptions& options)
      : network_(network), workload_(workload), options_(options) {
    for (const LayerWork& layer : workload.layers) {
      names_.push_back(trace::intern(layer.name));
      for (const std::size_t bytes : layer.tensor_bytes) {
        tensors_.push_back({layer_index(layer), bytes});
      }
    }
    prepare();
  }

  const std::vector<Work>& work() const { return work_; }
  // The last work of each step's compute lane.
  const std::vector<std::size_t>& ends() const { return ends_; }
  double comm_bytes() const { return comm_bytes_; }

  void add_step() {
    if (workload_.fixed_seconds > 0) {
      add({WorkLane::compute, Category::host, "host", workload_.fixed_seconds, 0, gate_});
    }
    if (options_.strategy == Strategy::data_parallel && num_devices() > 1) add_replication();
    add_forward();
    const std::vector<std::size_t> backward = add_backward();
    share_gradients(backward);
  }

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
  std::size_t layer_index(const LayerWork& layer) const {
    return static_cast<std::size_t>(&layer - workload_.layers.data());
  }
  double gradient_bytes() const { return static_cast<double>(workload_.gradient_bytes()); }
  const DeviceProfile& device() const { return network_.topology().device; }

  std::size_t add(Work work) {
    work_.push_back(std::move(work));
    return work_.size() - 1;
  }

  void prepare() {
    if (num_devices() < 2) return;
    const auto ranks = static_cast<double>(num_devices());
    const Strategy strategy = options_.strategy;
    if (strategy == Strategy::ddp || strategy == Strategy::hierarchical) {
      prepare_buckets();
      comm_bytes_ = 2 * (ranks - 1) / ranks * gradient_bytes();
    } else if (strategy == Strategy::nccl_replicated) {
      const double ring = nccl1_ring_bytes_per_second(network_, num_devices());
      for (auto tensor = tensors_.rbegin(); tensor != tensors_.rend(); ++tensor) {
        const auto bytes = static_cast<double>(tensor->bytes);
        comm_.push_back(
            {tensor->layer, tensor->bytes, nccl1_all_reduce_seconds(ring, num_devices(), bytes)});
      }
      comm_bytes_ = 2 * (ranks - 1) / ranks * gradient_bytes();
    } else if (strategy == Strategy::device_all_reduce) {
      std::vector<std::size_t> sizes;
      for (const TensorWork& tensor : tensors_) sizes.push_back(tensor.bytes);
      exchange_ = reduce_on_devices(network_, num_devices(), sizes);
      comm_bytes_ = exchange_.bytes_of_busiest;
    } else if (strategy == Strategy::data_parallel) {
      exchange_ = reduce_on_first(network_, num_devices(), gradient_bytes());
      comm_bytes_ = exchange_.bytes_of_busiest;
    } else {
      comm_bytes_ = gradient_bytes();
    }
  }

  void prepare_buckets() {
    std::vector<plan::BucketParameter> parameters;
    for (const TensorWork& tensor : tensors_) {
      parameters.push_back({tensor.bytes / sizeof(float), DType::float32, Device{}});
    }
    plan::BucketOptions bucket_options;
    bucket_options.byte_limits = options_.bucket_byte_limits;
    const std::vector<std::size_t> order = plan::reverse_order(parameters.size());
    const bool is_hierarchical = options_.strategy == Strategy::hierarchical;
    AllReduceCost cost(network_, num_devices(),
                       is_hierarchical ? plan::AllReducePlan::hierarchical : options_.own_plan);
    const double extra_latency =
        (options_.conditions.comm_latency - 1) * cost.seconds(sizeof(float) * num_devices());
    for (const plan::Bucket& bucket :
         plan::bucket_plan(parameters, order, bucket_options).buckets) {
      std::size_t first_layer = workload_.layers.size();
      for (const plan::BucketSlot& slot : bucket.slots) {
        first_layer = std::min(first_layer, tensors_[slot.parameter].layer);
      }
      comm_.push_back(
          {first_layer, bucket.num_bytes(), cost.seconds(bucket.num_bytes()) + extra_latency});
    }
  }

  // Kernels that copy gradients into buckets, or back.
  double copy_seconds(const LayerWork& layer) const {
    if (options_.gradients == StepOptions::Gradients::in_buckets || num_devices() < 2) return 0;
    double seconds = 0;
    for (const std::size_t bytes : layer.tensor_bytes) {
      seconds += device().launch_seconds +
                 2 * static_cast<double>(bytes) / device().memory_bytes_per_second;
    }
    return seconds;
  }

  void add_replication() {
    const double rows = workload_.input_bytes;
    Traffic scatter(network_);
    for (std::size_t i = 1; i < num_devices(); ++i) {
      scatter.add(network_.gpu(0), network_.gpu(i), rows);
    }
    const std::size_t scattered =
        add({WorkLane::down, Category::copy, "scatter", scatter.seconds(), 0, gate_});
    gate_ = {add({WorkLane::down,
                  Category::copy,
                  "replicate",
                  exchange_.broadcast_seconds,
                  workload_.gradient_bytes(),
                  {scattered}})};
  }

  // One thread at a time launches: the kernels of all replicas of a process, two a layer and pass.
  double launch_floor() const {
    if (options_.strategy != Strategy::data_parallel) return 0;
    return 2 * device().launch_seconds * static_cast<double>(num_devices());
  }

  void add_forward() {
    for (std::size_t i = 0; i < workload_.layers.size(); ++i) {
      std::vector<std::size_t> after = gate_;
      if (!arrived_.empty()) {
        after.insert(after.end(), arrived_[i].begin(), arrived_[i].end());
      }
      const double seconds = std::max(workload_.layers[i].forward_seconds, launch_floor());
      add({WorkLane::compute, Category::forward, names_[i], seconds, 0, std::move(after)});
    }
  }

  // Returns each layer's work.
  std::vector<std::size_t> add_backward() {
    std::vector<std::size_t> backward(workload_.layers.size());
    for (std::size_t i = workload_.layers.size(); i-- > 0;) {
      const LayerWork& layer = workload_.layers[i];
      const double seconds = std::max(layer.backward_seconds, launch_floor()) + copy_seconds(layer);
      backward[i] = add({WorkLane::compute, Category::backward, names_[i], seconds, 0});
    }
    return backward;
  }

  void share_gradients(const std::vector<std::size_t>& backward) {
    const std::size_t last = backward.front();
    arrived_.clear();
    gate_.clear();
    if (num_devices() < 2) return add_optimizer({});
    switch (options_.strategy) {
      case Strategy::cpu_parameter_server:
        return serve_parameters(backward);
      case Strategy::cpu_reduce:
        return reduce_on_host(last);
      case Strategy::data_parallel:
      case Strategy::device_all_reduce:
        return reduce_behind(last);
      default: {
        std::vector<std::size_t> done;
        for (const CommWork& comm : comm_) {
          done.push_back(add({WorkLane::comm,
                              Category::communication,
                              "all-reduce",
                              comm.seconds,
                              comm.bytes,
                              {backward[comm.layer]}}));
        }
        add_optimizer(done);
      }
    }
  }

  void add_optimizer(std::vector<std::size_t> after) {
    double seconds = workload_.optimizer_seconds;
    for (const LayerWork& layer : workload_.layers) seconds += copy_seconds(layer);
    ends_.push_back(
        add({WorkLane::compute, Category::optimizer, "optimizer", seconds, 0, std::move(after)}));
  }

  void reduce_behind(std::size_t last) {
    const std::size_t bytes = workload_.gradient_bytes();
    const std::size_t reduced = add(
        {WorkLane::up, Category::communication, "reduce", exchange_.reduce_seconds, bytes, {last}});
    // DataParallel sends the parameters at the beginning of the next step.
    if (options_.strategy == Strategy::data_parallel) return add_optimizer({reduced});
    add_optimizer({add({WorkLane::down,
                        Category::communication,
                        "broadcast",
                        exchange_.broadcast_seconds,
                        bytes,
                        {reduced}})});
  }

  void reduce_on_host(std::size_t last) {
    const double bytes = gradient_bytes();
    const std::size_t num_bytes = workload_.gradient_bytes();
    const Topology& topology = network_.topology();
    const std::size_t up = add({WorkLane::up,
                                Category::communication,
                                "to the host",
                                to_host_seconds(network_, num_devices(), bytes),
                                num_bytes,
                                {last}});
    const double sum =
        host_sum_seconds(topology, num_devices(), bytes) + host_update_seconds(topology, bytes);
    const std::size_t summed =
        add({WorkLane::host, Category::communication, "sum and update", sum, num_bytes, {up}});
    gate_ = {add({WorkLane::down,
                  Category::communication,
                  "from the host",
                  from_host_seconds(network_, num_devices(), bytes),
                  num_bytes,
                  {summed}})};
    ends_.push_back(last);
  }

  void serve_parameters(const std::vector<std::size_t>& backward) {
    const Topology& topology = network_.topology();
    arrived_.resize(workload_.layers.size());
    for (auto tensor = tensors_.rbegin(); tensor != tensors_.rend(); ++tensor) {
      const auto bytes = static_cast<double>(tensor->bytes);
      const std::size_t up = add({WorkLane::up,
                                  Category::communication,
                                  "to the host",
                                  to_host_seconds(network_, num_devices(), bytes),
                                  tensor->bytes,
                                  {backward[tensor->layer]}});
      const double sum =
          host_sum_seconds(topology, num_devices(), bytes) + host_update_seconds(topology, bytes);
      const std::size_t summed = add(
          {WorkLane::host, Category::communication, "sum and update", sum, tensor->bytes, {up}});
      arrived_[tensor->layer].push_back(add({WorkLane::down,
                                             Category::communication,
                                             "from the host",
                                             from_host_seconds(network_, num_devices(), bytes),
                                             tensor->bytes,
                                             {summed}}));
    }
    ends_.push_back(backward.front());
  }

  Network& network_;
  const Workload& workload_;
  const StepOptions& options_;
  std::vector<const char*> names_;
  std::vector<TensorWork> tensors_;  // in the order of registration
  std::vector<CommWork> comm_;
  Exchange exchange_;
  double comm_bytes_ = 0;
  std::vector<Work> work_;
  std::vector<std::size_t> ends_;
  std::vector<std::size_t> gate_;                  // what the next forward pass waits for
  std::vector<std::vector<std::size_t>> arrived_;  // the same, by layer
};

// What of [begin, end) lies in [first, last).
double inside(const DoneWork& done, double first, double last) {
  return std::max(0.0, std::min(done.end, last) - std::max(done.begin, first));
}

// Both lists are in the order of time, and within a list nothing overlaps.
double overlap(const std::vector<DoneWork>& a, const std::vector<DoneWork>& b) {
  double total = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    total += inside(a[i], b[j].begin, b[j].end);
    a[i].end < b[j].end ? ++i : ++j;
  }
  return total;
}

}  // namespace

double Workload::compute_seconds() const {
  double seconds = optimizer_seconds + fixed_seconds;
  for (const LayerWork& layer : layers) seconds += layer.forward_seconds + layer.backward_seconds;
  return seconds;
}

std::size_t Workload::gradient_bytes() const {
  std::size_t total = 0;
  for (const LayerWork& layer : layers) {
    for (const std::size_t bytes : layer.tensor_bytes) total += bytes;
  }
  return total;
}

Workload with_rows(Workload workload, double factor) {
  for (LayerWork& layer : workload.layers) {
    layer.forward_seconds *= factor;
    layer.backward_seconds *= factor;
  }
  workload.input_bytes *= factor;
  return workload;
}

double expected_largest_deviate(std::size_t n) {
  if (n < 2) return 0;
  const double quantile = (static_cast<double>(n) - 0.375) / (static_cast<double>(n) + 0.25);
  double low = 0;
  double high = 10;
  for (int i = 0; i < 60; ++i) {  // the inverse of the normal distribution, by halving
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < quantile ? low : high) = middle;
  }
  return low;
}

PredictedStep predict_step(Network& network, const Workload& workload, const StepOptions& options) {
  const std::size_t available = network.topology().gpus.size();
  require(options.num_devices >= 1 && options.num_devices <= available, ErrorCode::Usage, "predict",
          "'{}' has {} devices, {} were asked for", network.topology().name, available,
          options.num_devices);
  require(!workload.layers.empty(), ErrorCode::Usage, "predict", "the workload has no layers");
  StepWork steps(network, workload, options);
  for (std::size_t i = 0; i < kSteps; ++i) steps.add_step();
  const std::vector<DoneWork> times = run_lanes(steps.work(), kOverlapInterference);
  const double begin = times[steps.ends()[kSteps - 2]].end;
  const double end = times[steps.ends()[kSteps - 1]].end;

  PredictedStep result;
  trace::StepBreakdown& breakdown = result.breakdown;
  std::vector<DoneWork> computes;
  std::vector<DoneWork> comms;
  double copies = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const Work& work = steps.work()[i];
    const double seconds = inside(times[i], begin, end);
    if (seconds <= 0) continue;
    const DoneWork clipped{std::max(times[i].begin, begin) - begin,
                           std::min(times[i].end, end) - begin};
    result.work.push_back(work);
    result.times.push_back(clipped);
    if (work.lane == WorkLane::compute) computes.push_back(clipped);
    if (work.lane == WorkLane::comm) comms.push_back(clipped);
    if (work.category == Category::copy) copies += seconds;
    if (work.category == Category::forward) breakdown.forward += seconds;
    if (work.category == Category::backward) breakdown.backward += seconds;
    if (work.category == Category::optimizer) breakdown.optimizer += seconds;
    if (work.category == Category::host) breakdown.host += seconds;
  }
  const double busy = breakdown.forward + breakdown.backward + breakdown.optimizer;
  const double idle = std::max(0.0, end - begin - busy - breakdown.host);
  breakdown.copy = std::min(copies, idle);
  breakdown.exposed_comm = idle - breakdown.copy;
  for (const DoneWork& comm : comms) breakdown.comm += comm.end - comm.begin;
  breakdown.overlapped_comm = overlap(computes, comms);
  // The slowest of the devices is later by its share of the time in which they compute.
  breakdown.wait = busy * kDeviceDeviation * options.conditions.stragglers *
                   expected_largest_deviate(options.num_devices);
  breakdown.step = end - begin + breakdown.wait;
  result.step_seconds = breakdown.step;
  result.busy_fraction = busy / breakdown.step;
  result.comm_bytes_per_device = steps.comm_bytes();
  return result;
}

}  // namespace lockstep::predict
