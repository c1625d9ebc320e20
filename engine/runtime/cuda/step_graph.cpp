#include "engine/runtime/step_graph.h"

#include <algorithm>
#include <mutex>

#include "engine/core/error.h"
#include "engine/runtime/cuda/check.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/cuda_device.h"
#include "engine/runtime/logical_device.h"

namespace lockstep::runtime {
namespace {

using cuda::CudaStream;

bool& is_capturing_here() {
  thread_local bool capturing = false;
  return capturing;
}

// Pools of graphs. A tensor that a step made may outlive the graph, so a pool is never destroyed;
// the next graph of the device takes it.
class GraphPools {
 public:
  MemoryPool* take(const LogicalDevice& device) {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) {
      if (entry.device != device.device() || entry.is_taken) continue;
      entry.is_taken = true;
      return entry.pool.get();
    }
    entries_.push_back(
        {device.device(), true,
         make_cuda_memory_pool(to_string(device.device()) + " (graph)", device.gpu())});
    return entries_.back().pool.get();
  }
  void give_back(MemoryPool* pool) {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) {
      if (entry.pool.get() == pool) entry.is_taken = false;
    }
    pool->release_cached();
  }

 private:
  struct Entry {
    Device device;
    bool is_taken;
    std::unique_ptr<MemoryPool> pool;
  };
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

GraphPools& graph_pools() {
  static GraphPools& pools = *new GraphPools;
  return pools;
}

// A device whose new tensors come from a pool of the graph's.
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
// Ends the capture in every case: an error leaves streams that work as before.
class Capture {
 public:
  explicit Capture(const CudaStream& stream) : stream_(stream), current_(stream.gpu()) {
    CUDA_CHECK(cudaStreamBeginCapture(stream_.handle(), cudaStreamCaptureModeThreadLocal));
    is_capturing_here() = true;
  }
  ~Capture() {
    if (!is_capturing_here()) return;
    is_capturing_here() = false;
    cudaGraph_t graph = nullptr;
    cuda::ignore(cudaStreamEndCapture(stream_.handle(), &graph));
    if (graph != nullptr) cuda::ignore(cudaGraphDestroy(graph));
    cudaGetLastError();
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaGraph_t end() {
    is_capturing_here() = false;
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

  void capture(const std::function<void()>& step) {
    Capture capture(leader());
    fork();
    step();
    join();
    graph = capture.end();
    CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &num_nodes));
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  }

  void launch() const {
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
            "a step is captured on CUDA devices, found {}; train without --graph there",
            to_string(device));
    require(std::count(devices.begin(), devices.end(), device) == 1, ErrorCode::Usage, "graph",
            "{} stands twice among the devices", to_string(device));
    logical_device(device);  // fails before a pool is taken
  }
  for (const Device device : devices) {
    LogicalDevice& member = logical_device(device);
    parts_->members.push_back({&member, graph_pools().take(member)});
  }
}

StepGraph::~StepGraph() {
  if (parts_->executable != nullptr) cuda::ignore(cudaGraphExecDestroy(parts_->executable));
  if (parts_->graph != nullptr) cuda::ignore(cudaGraphDestroy(parts_->graph));
  for (const Member& member : parts_->members) graph_pools().give_back(member.pool);
}

void StepGraph::run(const std::function<void()>& step) {
  if (!is_captured()) {
    const PoolScope pools(parts_->members);
    if (parts_->num_calls++ < kNumWarmUps) {
      step();
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

bool is_capturing_step() {
  return is_capturing_here();
}

}  // namespace lockstep::runtime
