#include "simulate/predict/step_work.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "engine/plan/all_reduce_plan.h"
#include "engine/plan/buckets.h"
#include "simulate/predict/all_reduce_cost.h"
#include "simulate/predict/kernel_cost.h"

namespace lockstep::predict {

Exchange reduce_on_devices(Network& network, std::size_t num_devices,
                           std::vector<std::size_t> tensor_bytes) {
  const DeviceProfile& device = network.topology().device;
  std::ranges::sort(tensor_bytes, std::greater<>());
  std::vector<double> owned(num_devices, 0);
  std::vector<std::size_t> num_owned(num_devices, 0);
  for (const std::size_t bytes : tensor_bytes) {
    const auto owner = static_cast<std::size_t>(std::ranges::min_element(owned) - owned.begin());
    owned[owner] += static_cast<double>(bytes);
    ++num_owned[owner];
  }
  Traffic reduce(network);
  Traffic broadcast(network);
  double total = 0;
  for (std::size_t owner = 0; owner < num_devices; ++owner) {
    total += owned[owner];
    for (std::size_t other = 0; other < num_devices; ++other) {
      if (other == owner || owned[owner] == 0) continue;
      reduce.add(network.gpu(other), network.gpu(owner), owned[owner]);
      broadcast.add(network.gpu(owner), network.gpu(other), owned[owner]);
    }
  }
  const double most = *std::ranges::max_element(owned);
  const auto others = static_cast<double>(num_devices - 1);
  const double copies =
      static_cast<double>(*std::ranges::max_element(num_owned)) * others * device.launch_seconds;
  const double sums = (others + 2) * most / device.memory_bytes_per_second;
  return {reduce.seconds() + copies + sums, broadcast.seconds() + copies,
          others * most + (total - most)};
}

Exchange reduce_on_first(Network& network, std::size_t num_devices,
                         const std::vector<std::size_t>& tensor_bytes) {
  const auto others = static_cast<double>(num_devices - 1);
  Exchange exchange;
  for (const std::size_t num_bytes : tensor_bytes) {
    const auto bytes = static_cast<double>(num_bytes);
    Traffic reduce(network);
    for (std::size_t other = 1; other < num_devices; ++other) {
      reduce.add(network.gpu(other), network.gpu(0), bytes);
    }
    exchange.reduce_seconds +=
        reduce.seconds() + traffic_seconds(network.topology().device, (others + 2) * bytes);
    exchange.bytes_of_busiest += others * bytes;
  }
  return exchange;
}

Exchange rooted_exchange(Network& network, std::size_t num_devices, double num_bytes) {
  const double seconds = nccl_rooted_seconds(nccl_group(network, num_devices), num_bytes) +
                         traffic_seconds(network.topology().device, 2 * num_bytes);
  // A rank in the middle of the ring passes both on.
  return {seconds, seconds, num_devices > 2 ? 2 * num_bytes : num_bytes};
}

namespace {

// With several hosts, each keeps its part of the parameters, and gets that part of every host's
// sums.
void add_between_hosts(Network& network, std::size_t num_devices, double num_bytes,
                       Traffic& traffic) {
  const std::size_t per_host = network.topology().gpus_per_host();
  const std::size_t num_hosts = (num_devices + per_host - 1) / per_host;
  const double part = num_bytes / static_cast<double>(num_hosts);
  for (std::size_t h = 0; h < num_hosts; ++h) {
    for (std::size_t g = 0; g < num_hosts; ++g) {
      if (g == h) continue;
      traffic.add(network.cpu_of(h * per_host), network.cpu_of(g * per_host), part);
    }
  }
}

}  // namespace

double host_seconds(Network& network, std::size_t num_devices, double num_bytes, HostWay way) {
  Traffic traffic(network);
  for (std::size_t i = 0; i < num_devices; ++i) {
    const std::size_t gpu = network.gpu(i), cpu = network.cpu_of(i);
    traffic.add(way == HostWay::up ? gpu : cpu, way == HostWay::up ? cpu : gpu, num_bytes);
  }
  add_between_hosts(network, num_devices, num_bytes, traffic);
  return traffic.seconds();
}

double host_sum_seconds(double host_bytes_per_second, std::size_t num_devices, double num_bytes) {
  return (static_cast<double>(num_devices) + 2) * num_bytes / host_bytes_per_second;
}

double host_update_seconds(double host_bytes_per_second, double num_bytes) {
  return 9 * num_bytes / host_bytes_per_second;
}

StepWork::StepWork(Network& network, const Workload& workload, const StepOptions& options)
    : network_(network), workload_(workload), options_(options) {
  for (const LayerWork& layer : workload.layers) {
    names_.push_back(trace::intern(layer.name));
    for (const std::size_t bytes : layer.tensor_bytes) {
      tensors_.push_back({layer_index(layer), bytes});
    }
  }
  prepare();
}

void StepWork::add_step() {
  const bool has_replicas = options_.strategy == Strategy::data_parallel && num_devices() > 1;
  has_replicas ? add_replication() : add_fixed_work();
  if (has_buckets() || has_shards()) add_buffers();
  sums_.clear();
  for (std::size_t i = 0; i < options_.num_accumulated; ++i) {
    const bool gathers = has_shards() && (i == 0 || options_.strategy == Strategy::zero3);
    gathers ? add_sharded_forward() : add_forward();
    const bool is_last = i + 1 == options_.num_accumulated;
    if (has_shards()) {
      add_sharded_backward(is_last || reduces_each_batch() ? Gradients::reduced : Gradients::kept);
    } else if (!is_last) {
      gate_ = {add_backward().front()};
    }
  }
  if (has_shards()) return update_shards();
  if (has_replicas) add_gather();
  share_gradients(add_backward());
}

void StepWork::add_fixed_work() {
  if (workload_.fixed_seconds == 0) return;
  gate_ = {compute(trace::Category::host, "host", workload_.fixed_seconds, gate_)};
}

std::size_t StepWork::layer_index(const LayerWork& layer) const {
  return static_cast<std::size_t>(&layer - workload_.layers.data());
}

std::size_t StepWork::add(Work work) {
  work_.push_back(std::move(work));
  return work_.size() - 1;
}

std::size_t StepWork::compute(trace::Category category, const char* name, double seconds,
                              Places after) {
  return add({WorkLane::compute, category, name, seconds, 0, std::move(after)});
}

std::size_t StepWork::communicate(WorkLane lane, const char* name, double seconds,
                                  std::size_t num_bytes, Places after) {
  return add({lane, trace::Category::communication, name, seconds, num_bytes, std::move(after)});
}

std::size_t StepWork::copy_down(const char* name, double seconds, std::size_t num_bytes) {
  return add({WorkLane::down, trace::Category::copy, name, seconds, num_bytes, gate_});
}

void StepWork::prepare() {
  if (num_devices() < 2) return;
  const auto ranks = static_cast<double>(num_devices());
  const Strategy strategy = options_.strategy;
  std::vector<std::size_t> sizes;
  for (const TensorWork& tensor : tensors_) sizes.push_back(tensor.bytes);
  if (has_buckets()) {
    prepare_buckets();
    comm_bytes_ = 2 * (ranks - 1) / ranks * gradient_bytes();
    for (const LayerWork& layer : workload_.layers) {
      for (const std::size_t bytes : layer.buffer_bytes) {
        comm_bytes_ += (ranks - 1) * static_cast<double>(bytes);
      }
    }
  } else if (strategy == Strategy::nccl_replicated) {
    const double ring = nccl1_ring_bytes_per_second(network_, num_devices());
    for (auto tensor = tensors_.rbegin(); tensor != tensors_.rend(); ++tensor) {
      const auto bytes = static_cast<double>(tensor->bytes);
      comm_.push_back(
          {tensor->layer, tensor->bytes, nccl1_all_reduce_seconds(ring, num_devices(), bytes)});
    }
    comm_bytes_ = 2 * (ranks - 1) / ranks * gradient_bytes();
  } else if (has_shards()) {
    prepare_shards();
  } else if (strategy == Strategy::device_all_reduce ||
             strategy == Strategy::device_parameter_server) {
    exchange_ = reduce_on_devices(network_, num_devices(), sizes);
    comm_bytes_ = exchange_.bytes_of_busiest;
  } else if (strategy == Strategy::data_parallel) {
    exchange_ = has_python() ? rooted_exchange(network_, num_devices(), gradient_bytes())
                             : reduce_on_first(network_, num_devices(), sizes);
    comm_bytes_ = exchange_.bytes_of_busiest;
  } else {
    comm_bytes_ = gradient_bytes();
  }
}

void StepWork::prepare_buckets() {
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
  for (const plan::Bucket& bucket : plan::bucket_plan(parameters, order, bucket_options).buckets) {
    std::size_t first_layer = workload_.layers.size();
    for (const plan::BucketSlot& slot : bucket.slots) {
      first_layer = std::min(first_layer, tensors_[slot.parameter].layer);
    }
    comm_.push_back({first_layer, bucket.num_bytes(), cost.seconds(bucket.num_bytes())});
  }
}

double StepWork::copy_seconds(const LayerWork& layer) const {
  if (options_.gradients == StepOptions::Gradients::in_buckets || num_devices() < 2) return 0;
  double seconds = 0;
  for (const std::size_t bytes : layer.tensor_bytes) {
    seconds +=
        device().launch_seconds + 2 * static_cast<double>(bytes) / device().memory_bytes_per_second;
  }
  return seconds;
}

// Rows and parameters leave the first device together. PyTorch broadcasts the parameters instead,
// while its interpreter copies the modules.
void StepWork::add_replication() {
  const double sent_by_first = workload_.input_bytes + (has_python() ? 0 : gradient_bytes());
  Traffic traffic(network_);
  for (std::size_t i = 1; i < num_devices(); ++i) {
    traffic.add(network_.gpu(0), network_.gpu(i), sent_by_first);
  }
  const double seconds = traffic.seconds() + (has_python() ? exchange_.broadcast_seconds : 0);
  const std::size_t sent = copy_down("scatter and replicate", seconds, workload_.gradient_bytes());
  const Places begin = std::exchange(gate_, {sent});
  if (!has_python()) return;
  const double copies = static_cast<double>(num_devices()) * options_.python->copy_seconds;
  gate_.push_back(add({WorkLane::host, trace::Category::host, "copy modules", copies, 0, begin}));
}

// Outputs are small: what counts is the way there and their gradients' way back. The first device,
// which was ahead, has copied its own by then.
void StepWork::add_gather() {
  Traffic way(network_);
  for (std::size_t i = 1; i < num_devices(); ++i) way.add(network_.gpu(i), network_.gpu(0), 0);
  gate_ = {work_.size() - 1};
  gate_ = {copy_down("gather", way.seconds(), 0)};
  add_fixed_work();  // the loss, on the first device
  gate_ = {copy_down("scatter gradients", way.seconds(), 0)};
}

bool StepWork::has_buckets() const {
  return num_devices() > 1 &&
         (options_.strategy == Strategy::ddp || options_.strategy == Strategy::hierarchical);
}

// Comes after the step before: blocking calls, one for all statistics and one for all counters,
// which have 8 bytes.
void StepWork::add_buffers() {
  std::size_t statistics = 0, counters = 0;
  for (const LayerWork& layer : workload_.layers) {
    for (const std::size_t bytes : layer.buffer_bytes) {
      (bytes == sizeof(std::int64_t) ? counters : statistics) += bytes;
    }
  }
  const auto ranks = static_cast<int>(num_devices());
  const Places after = ends_.empty() ? gate_ : Places{ends_.back()};
  arrived_.resize(workload_.layers.size());
  for (const std::size_t bytes : {statistics, counters}) {
    if (bytes == 0) continue;
    const double seconds = plan_seconds(network_, plan::broadcast_plan(ranks, bytes, 0), 1);
    arrived_[0].push_back(communicate(WorkLane::comm, "broadcast", seconds, bytes, after));
  }
}

StepWork::Places StepWork::exchange_statistics(std::size_t index, trace::Category category,
                                               Places after) {
  const LayerWork& layer = workload_.layers[index];
  const std::size_t bytes = layer.statistics.num_bytes;
  if (bytes == 0 || (!has_buckets() && !has_shards())) return after;
  const auto ranks = static_cast<int>(num_devices());
  const bool is_forward = category == trace::Category::forward;
  const plan::CollectivePlan plan =
      is_forward
          ? plan::all_gather_plan(ranks, num_devices() * bytes / sizeof(double))
          : plan::all_reduce_plan(plan::AllReducePlan::automatic, ranks, bytes / sizeof(double));
  const std::size_t made =
      compute(category, names_[index],
              is_forward ? layer.statistics.forward_seconds : layer.statistics.backward_seconds,
              std::move(after));
  return {communicate(WorkLane::comm, "statistics", plan_seconds(network_, plan, sizeof(double)),
                      bytes, {made})};
}

void StepWork::add_forward() {
  // All replicas' launches of a layer, which are in turns.
  const double launches = has_python() ? static_cast<double>(num_devices()) *
                                             options_.python->forward_seconds /
                                             static_cast<double>(workload_.layers.size())
                                       : 0;
  for (std::size_t i = 0; i < workload_.layers.size(); ++i) {
    Places after = gate_;
    if (!arrived_.empty()) after.insert(after.end(), arrived_[i].begin(), arrived_[i].end());
    if (has_python()) {
      after.push_back(add({WorkLane::host, trace::Category::host, "launch", launches, 0, gate_}));
    }
    after = exchange_statistics(i, trace::Category::forward, std::move(after));
    compute(trace::Category::forward, names_[i], workload_.layers[i].forward_seconds,
            std::move(after));
  }
}

double StepWork::backward_share() const {
  if (!has_python()) return 1;
  double forward = 0, backward = 0;
  for (const LayerWork& layer : workload_.layers) {
    forward += layer.forward_seconds;
    backward += layer.backward_seconds;
  }
  const double longer = options_.python->forward_seconds - forward;
  return longer > 0 ? std::max(0.0, backward - longer) / backward : 1;
}

StepWork::Places StepWork::add_backward() {
  Places backward(workload_.layers.size());
  const double share = backward_share();
  for (std::size_t i = workload_.layers.size(); i-- > 0;) {
    const LayerWork& layer = workload_.layers[i];
    const double seconds = share * layer.backward_seconds + copy_seconds(layer);
    const bool is_first = i + 1 == workload_.layers.size();
    Places after = exchange_statistics(i, trace::Category::backward, is_first ? gate_ : Places{});
    backward[i] = compute(trace::Category::backward, names_[i], seconds, std::move(after));
  }
  return backward;
}

void StepWork::share_gradients(const Places& backward) {
  const std::size_t last = backward.front();
  arrived_.clear();
  gate_.clear();
  if (num_devices() < 2) return add_optimizer({});
  switch (options_.strategy) {
    case Strategy::cpu_parameter_server:
      return serve_parameters(backward);
    case Strategy::cpu_reduce:
      return reduce_on_host(last);
    case Strategy::device_parameter_server:
      return serve_from_devices(backward);
    case Strategy::data_parallel:
    case Strategy::device_all_reduce:
      return reduce_behind(last);
    default: {
      const bool overlaps = options_.overlap == StepOptions::Overlap::on;
      Places done;
      for (const CommWork& comm : comm_) {
        done.push_back(communicate(WorkLane::comm, "all-reduce", comm.seconds, comm.bytes,
                                   {backward[overlaps ? comm.layer : 0]}));
      }
      add_optimizer(done);
    }
  }
}

double StepWork::optimizer_seconds(double share) const {
  return share * workload_.optimizer_seconds;
}

void StepWork::add_optimizer(Places after) {
  double seconds = optimizer_seconds(1);
  for (const LayerWork& layer : workload_.layers) seconds += copy_seconds(layer);
  ends_.push_back(compute(trace::Category::optimizer, "optimizer", seconds, std::move(after)));
}

void StepWork::reduce_behind(std::size_t last) {
  const std::size_t bytes = workload_.gradient_bytes();
  const std::size_t reduced =
      communicate(WorkLane::up, "reduce", exchange_.reduce_seconds, bytes, {last});
  // DataParallel sends the parameters at the beginning of the next step.
  if (options_.strategy == Strategy::data_parallel) {
    add_optimizer({reduced});
    gate_ = {ends_.back()};
    return;
  }
  add_optimizer(
      {communicate(WorkLane::down, "broadcast", exchange_.broadcast_seconds, bytes, {reduced})});
}

std::size_t StepWork::pass_host(std::size_t num_bytes, double bytes_per_second, std::size_t after) {
  const auto bytes = static_cast<double>(num_bytes);
  const double up = host_seconds(network_, num_devices(), bytes, HostWay::up);
  const double sum = host_sum_seconds(bytes_per_second, num_devices(), bytes) +
                     host_update_seconds(bytes_per_second, bytes);
  const double down = host_seconds(network_, num_devices(), bytes, HostWay::down);
  const std::size_t arrived = communicate(WorkLane::up, "to the host", up, num_bytes, {after});
  const std::size_t summed =
      communicate(WorkLane::host, "sum and update", sum, num_bytes, {arrived});
  return communicate(WorkLane::down, "from the host", down, num_bytes, {summed});
}

void StepWork::reduce_on_host(std::size_t last) {
  gate_ = {pass_host(workload_.gradient_bytes(), network_.topology().host_thread_bytes_per_second,
                     last)};
  ends_.push_back(last);
}

void StepWork::serve_parameters(const Places& backward) {
  arrived_.resize(workload_.layers.size());
  for (auto tensor = tensors_.rbegin(); tensor != tensors_.rend(); ++tensor) {
    arrived_[tensor->layer].push_back(pass_host(
        tensor->bytes, network_.topology().host_bytes_per_second, backward[tensor->layer]));
  }
  ends_.push_back(backward.front());
}

// Each tensor takes its share of the whole exchange's time; parameters are sent in the order in
// which the next forward pass needs them.
void StepWork::serve_from_devices(const Places& backward) {
  const auto share = [&](const TensorWork& tensor, double seconds) {
    return seconds * static_cast<double>(tensor.bytes) / gradient_bytes();
  };
  Places summed;
  for (auto tensor = tensors_.rbegin(); tensor != tensors_.rend(); ++tensor) {
    summed.push_back(communicate(WorkLane::up, "reduce", share(*tensor, exchange_.reduce_seconds),
                                 tensor->bytes, {backward[tensor->layer]}));
  }
  add_optimizer(std::move(summed));
  arrived_.resize(workload_.layers.size());
  for (const TensorWork& tensor : tensors_) {
    arrived_[tensor.layer].push_back(communicate(WorkLane::down, "broadcast",
                                                 share(tensor, exchange_.broadcast_seconds),
                                                 tensor.bytes, {ends_.back()}));
  }
}

// ZeRO: the devices share the update, and in its third stage the parameters.
//
// A unit's parameters are gathered while the unit before it computes, and its gradients reduced
// while the next ones are made; at most one reduce-scatter runs beside backward
// (engine/parallel/sharded/unit_schedule.h); FSDP does the same for each block of a net. Source:
// Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
// Parameter Models", SC 2020 (stages 1 and 2: as many bytes as DDP, stage 3 half as many again).

namespace {

// A layer's unit is the block that the first number in its name counts: "transformer.h.0" for
// "transformer.h.0.attn.c_attn", "layer1.0" for "layer1.0.conv1". "fc" is a unit of its own.
std::string unit_of(const std::string& layer) {
  std::size_t begin = 0;
  while (begin < layer.size()) {
    const std::size_t end = std::min(layer.find('.', begin), layer.size());
    const std::string word = layer.substr(begin, end - begin);
    if (!word.empty() && word.find_first_not_of("0123456789") == std::string::npos) {
      return layer.substr(0, end);
    }
    begin = end + 1;
  }
  return layer;
}

}  // namespace

bool StepWork::has_shards() const {
  const Strategy strategy = options_.strategy;
  return num_devices() > 1 && (strategy == Strategy::zero1 || strategy == Strategy::zero2 ||
                               strategy == Strategy::zero3);
}

bool StepWork::overlaps_shards() const {
  return options_.overlap == StepOptions::Overlap::on || options_.strategy == Strategy::zero3;
}

bool StepWork::reduces_each_batch() const {
  return options_.strategy != Strategy::zero1 &&
         options_.reduced == StepOptions::Reduced::with_each;
}

void StepWork::prepare_shards() {
  for (std::size_t i = 0; i < workload_.layers.size(); ++i) {
    const LayerWork& layer = workload_.layers[i];
    const std::size_t bytes = layer.gradient_bytes();
    const bool is_same = !units_.empty() && (bytes == 0 || units_.back().bytes == 0 ||
                                             unit_of(workload_.layers[units_.back().begin].name) ==
                                                 unit_of(layer.name));
    if (!is_same) units_.push_back({i, i});
    units_.back().end = i + 1;
    units_.back().bytes += bytes;
  }
  const auto ranks = static_cast<int>(num_devices());
  const NcclGroup group = nccl_group(network_, num_devices());
  for (Unit& unit : units_) {
    const auto bytes = static_cast<double>(unit.bytes);
    unit.gather_seconds = nccl_half_seconds(group, options_.gathered_share * bytes);
    unit.scatter_seconds = nccl_half_seconds(group, bytes);
    if (!options_.own_plan) continue;
    const std::size_t elements =
        (unit.bytes / sizeof(float) + num_devices() - 1) / num_devices() * num_devices();
    unit.gather_seconds =
        plan_seconds(network_, plan::all_gather_plan(ranks, elements), sizeof(float));
    unit.scatter_seconds =
        plan_seconds(network_, plan::reduce_scatter_plan(ranks, elements), sizeof(float));
  }
  const auto batches = static_cast<double>(options_.num_accumulated);
  const double reduced = reduces_each_batch() ? batches : 1;
  const double gathered = options_.strategy == Strategy::zero3 ? 2 * batches : 1;
  comm_bytes_ =
      (reduced + gathered * options_.gathered_share) * (ranks - 1) / ranks * gradient_bytes();
}

std::size_t StepWork::add_gather_of(std::size_t unit, Places after) {
  return communicate(WorkLane::comm, "all-gather", units_[unit].gather_seconds, units_[unit].bytes,
                     std::move(after));
}

// The gather of unit u + 1 begins with the forward pass of unit u.
void StepWork::add_sharded_forward() {
  Places after = gate_;
  if (!arrived_.empty()) after.insert(after.end(), arrived_[0].begin(), arrived_[0].end());
  if (!overlaps_shards()) {
    for (std::size_t u = 0; u < units_.size(); ++u) after = {add_gather_of(u, std::move(after))};
    gate_ = after;
    return add_forward();
  }
  std::size_t gathered = add_gather_of(0, after);
  for (std::size_t u = 0; u < units_.size(); ++u) {
    after.push_back(gathered);
    if (u + 1 < units_.size()) gathered = add_gather_of(u + 1, after);
    for (std::size_t i = units_[u].begin; i < units_[u].end; ++i) {
      after = exchange_statistics(i, trace::Category::forward, std::move(after));
      after = {compute(trace::Category::forward, names_[i], workload_.layers[i].forward_seconds,
                       std::move(after))};
    }
  }
  gate_ = after;
}

// The gather of unit u - 1 begins with the backward pass of unit u, in stage three; its gradients'
// reduce-scatter with the next unit's.
void StepWork::add_sharded_backward(Gradients gradients) {
  if (!overlaps_shards()) {
    gate_ = {add_backward().front()};
    for (std::size_t u = units_.size(); u-- > 0 && gradients == Gradients::reduced;) {
      sums_.push_back(communicate(WorkLane::comm, "reduce-scatter", units_[u].scatter_seconds,
                                  units_[u].bytes, gate_));
    }
    return;
  }
  const bool gathers = options_.strategy == Strategy::zero3;
  Places after = gate_;
  std::size_t gathered = gathers ? add_gather_of(units_.size() - 1, after) : 0;
  for (std::size_t u = units_.size(); u-- > 0;) {
    if (gathers) after.push_back(gathered);
    if (gathers && u > 0) gathered = add_gather_of(u - 1, after);
    for (std::size_t i = units_[u].end; i-- > units_[u].begin;) {
      const LayerWork& layer = workload_.layers[i];
      after = exchange_statistics(i, trace::Category::backward, std::move(after));
      after = {compute(trace::Category::backward, names_[i],
                       layer.backward_seconds + copy_seconds(layer), std::move(after))};
    }
    if (!sums_.empty()) after.push_back(sums_.back());
    if (units_[u].bytes == 0 || gradients == Gradients::kept) continue;
    sums_.push_back(communicate(WorkLane::comm, "reduce-scatter", units_[u].scatter_seconds,
                                units_[u].bytes, after));
  }
  gate_ = after;
}

void StepWork::update_shards() {
  arrived_.clear();
  ends_.push_back(compute(trace::Category::optimizer, "optimizer",
                          optimizer_seconds(1 / static_cast<double>(num_devices())), sums_));
  gate_ = {ends_.back()};
}

}  // namespace lockstep::predict
