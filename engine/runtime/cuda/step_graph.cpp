#include "engine/runtime/step_graph.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/thread_context.h"
#include "engine/runtime/cuda/check.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/cuda_device.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/storage.h"

namespace lockstep::runtime {

namespace {

using cuda::CudaStream;

// The number of the step (ThreadContext::step), in the memory of each device of a graph that uses
// it.
class StepNumbers {
 public:
  // Made at a device's first request, from the device's own pool: it outlives the step's
  // allocations.
  const std::int64_t* of(Device device) {
    std::shared_ptr<Storage>& number = numbers_[device];
    if (number == nullptr) {
      LogicalDevice& owner = logical_device(device);
      number = std::make_shared<Storage>(owner, sizeof(std::int64_t), owner.own_memory());
    }
    return static_cast<const std::int64_t*>(number->data());
  }
  // CUDA takes so few bytes from the host's memory at once, without waiting. Each number is written
  // by its own device's stream: another GPU may not reach it.
  void write() const {
    const auto step = static_cast<std::int64_t>(thread_context().step);
    for (const auto& [device, number] : numbers_) {
      copy_on_cuda_stream(logical_device(device).compute_stream(), number->data(), &step,
                          sizeof(step));
    }
  }
  void clear() { numbers_.clear(); }

 private:
  std::map<Device, std::shared_ptr<Storage>> numbers_;  // an int64 each
};

// The step numbers of the graph that the calling thread captures; nullptr outside a capture.
StepNumbers*& current_numbers() {
  thread_local StepNumbers* numbers = nullptr;
  return numbers;
}

// Memory of a graph of its own. A tensor from a step may outlive the graph, so the pool is never
// destroyed; it is empty afterwards.
MemoryPool* make_graph_pool(LogicalDevice& device) {
  const std::string name = to_string(device.device()) + " (graph)";
  return make_cuda_memory_pool(name, device.gpu(), &device.own_memory()).release();
}

// A device whose new tensors come from one of the graph's pools.
struct Member {
  LogicalDevice* device;
  MemoryPool* pool;
};

class PoolScope {
 public:
  explicit PoolScope(const std::vector<Member>& members) : members_(members) {
    for (const Member& member : members_) member.device->set_memory(member.pool);
  }
  ~PoolScope() {
    for (const Member& member : members_) member.device->set_memory(nullptr);
  }
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  const std::vector<Member>& members_;
};

// Between begin and end all work of the stream, and of streams that wait for it, goes into a graph.
// The destructor always ends the capture, so that after an error the streams work as before.
class Capture {
 public:
  Capture(const CudaStream& stream, StepNumbers& numbers)
      : stream_(stream), current_(stream.gpu()) {
    CUDA_CHECK(cudaStreamBeginCapture(stream_.handle(), cudaStreamCaptureModeThreadLocal));
    current_numbers() = &numbers;
    cuda::current_capture() = std::make_shared<const cuda::CaptureLife>();
  }
  ~Capture() {
    current_numbers() = nullptr;
    if (!cuda::current_capture()) return;
    cuda::current_capture().reset();
    cudaGraph_t graph = nullptr;
    cuda::ignore(cudaStreamEndCapture(stream_.handle(), &graph));
    if (graph != nullptr) cuda::ignore(cudaGraphDestroy(graph));
    cudaGetLastError();
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaGraph_t end() {
    cuda::current_capture().reset();
    cudaGraph_t graph = nullptr;
    CUDA_CHECK(cudaStreamEndCapture(stream_.handle(), &graph));
    return graph;
  }

 private:
  const CudaStream& stream_;
  cuda::CurrentGpu current_;
};

}  // namespace

struct StepGraph::Parts {
  std::vector<Member> members;
  std::size_t num_calls = 0;
  std::size_t num_nodes = 0;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  std::shared_ptr<const cuda::CaptureLife> life;
  StepNumbers step_numbers;

  CudaStream& leader() const { return cuda::cuda_stream(members[0].device->compute_stream()); }

  // The leader's later work follows all work of the other devices.
  void join() const {
    for (std::size_t i = 1; i < members.size(); ++i) {
      leader().wait(members[i].device->compute_stream().record());
    }
  }
  // Later work of the other devices follows all work of the leader.
  void fork() const {
    if (members.size() == 1) return;
    const std::shared_ptr<Event> start = leader().record();
    for (std::size_t i = 1; i < members.size(); ++i) {
      members[i].device->compute_stream().wait(start);
    }
  }

  // Orders the work like a launch of the graph.
  void warm_up(const std::function<void()>& step) const {
    join();
    fork();
    step();
    join();
    fork();
  }

  void capture(const std::function<void()>& step) {
    for (const Member& member : members) member.pool->keep_blocks();
    try {
      Capture capture(leader(), step_numbers);
      life = cuda::current_capture();
      fork();
      step();
      join();
      graph = capture.end();
      cuda::ignore(cudaGraphGetNodes(graph, nullptr, &num_nodes));  // only people read the number
      CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    } catch (...) {
      forget();
      throw;
    }
  }

  // Drops the graph, if there is one, and the memory that only it used.
  void forget() {
    const cuda::CurrentGpu current(leader().gpu(), std::nothrow);
    if (executable != nullptr) cuda::ignore(cudaGraphExecDestroy(executable));
    if (graph != nullptr) cuda::ignore(cudaGraphDestroy(graph));
    executable = nullptr;
    graph = nullptr;
    life.reset();
    step_numbers.clear();
    for (const Member& member : members) member.pool->let_blocks_go();
  }

  void launch() const {
    step_numbers.write();
    join();
    const cuda::CurrentGpu current(leader().gpu());
    CUDA_CHECK(cudaGraphLaunch(executable, leader().handle()));
    fork();
  }
};

StepGraph::StepGraph(std::vector<Device> devices) : parts_(std::make_unique<Parts>()) {
  require(!devices.empty(), ErrorCode::Usage, "graph", "needs at least one device");
  for (const Device device : devices) {
    require(device.type == DeviceType::cuda, ErrorCode::Usage, "graph",
            "a step is captured on CUDA devices, found {}; run the step without a graph there",
            to_string(device));
    require(std::count(devices.begin(), devices.end(), device) == 1, ErrorCode::Usage, "graph",
            "{} appears twice among the devices", to_string(device));
    logical_device(device);  // throws before a pool is taken
  }
  for (const Device device : devices) {
    LogicalDevice& member = logical_device(device);
    parts_->members.push_back({&member, make_graph_pool(member)});
  }
}

StepGraph::~StepGraph() {
  try {
    for (const Member& member : parts_->members) {
      member.device->compute_stream().record()->wait_quietly();
    }
  } catch (const Error&) {
    // A device that has failed does nothing any more.
  }
  parts_->forget();
  for (const Member& member : parts_->members) member.pool->release_cached();
}

void StepGraph::run(const std::function<void()>& step) {
  if (!is_captured()) {
    const PoolScope pools(parts_->members);
    if (parts_->num_calls++ < kNumWarmUps) {
      parts_->warm_up(step);
      return;
    }
    parts_->capture(step);
  }
  parts_->launch();
}

bool StepGraph::is_captured() const {
  return parts_->executable != nullptr;
}

std::size_t StepGraph::num_nodes() const {
  return parts_->num_nodes;
}

const std::int64_t* captured_step_number(Device device) {
  return current_numbers() == nullptr ? nullptr : current_numbers()->of(device);
}

bool is_capturing_step() {
  return cuda::current_capture() != nullptr;
}

}  // namespace lockstep::runtime
