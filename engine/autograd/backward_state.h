// What one backward pass knows while it runs: which gradients are still to arrive, and what is
// ready on which device. Included by the autograd sources only.
#pragma once

#include <deque>
#include <exception>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/autograd/backward_pass.h"
#include "engine/core/thread_context.h"

namespace lockstep {

// A node with its gradients, or a gradient for a leaf that another device computed.
struct Task {
  std::shared_ptr<Node> node;
  Gradients grads;
  Variable leaf;

  // Leaves first: their hooks start communication.
  std::uint64_t priority() const { return node ? node->sequence() : ~std::uint64_t{0}; }
  bool operator<(const Task& other) const { return priority() < other.priority(); }
};

// The ready tasks of one device. At most one thread works on a device at a time.
struct DeviceQueue {
  Device device;
  std::vector<Task> ready;  // a heap
  bool busy = false;
};

// What is still to arrive at a node.
struct Arrivals {
  std::size_t missing = 0;
  Gradients grads;
};

// The same for a leaf, which adds up what arrives by itself.
struct LeafArrivals {
  std::size_t missing = 0;
  bool any = false;
};

struct BackwardPass::State {
  Graph graph = Graph::release;
  ThreadContext context;
  std::uint64_t audit_pass = 0;  // its number in an audit; 0: none

  std::mutex mutex;  // guards all below; taken by guard()
  std::deque<DeviceQueue> queues;
  std::pmr::monotonic_buffer_resource memory;  // of the two maps
  std::pmr::unordered_map<const Node*, Arrivals> arrivals{&memory};
  std::pmr::unordered_map<const void*, LeafArrivals> leaf_arrivals{&memory};  // by identity()
  std::size_t outstanding = 0;  // nodes and leaf tasks not yet done
  std::size_t running = 0;      // tasks that a thread is working on
  bool has_failed = false;
  std::exception_ptr error;  // the first one
  std::vector<std::function<void()>> at_end;
  runtime::WaitWord changed;  // counts pushes, ends and errors

  bool finished() const { return outstanding == 0 || has_failed; }

  // Several threads work on a pass over several devices; known once the graph is discovered.
  bool has_several_devices() const { return queues.size() > 1; }
  // Locks the mutex if anybody else could want it.
  std::unique_lock<std::mutex> guard() {
    return has_several_devices() ? std::unique_lock(mutex) : std::unique_lock<std::mutex>();
  }

  DeviceQueue& queue(Device device) {
    for (DeviceQueue& queue : queues) {
      if (queue.device == device) return queue;
    }
    queues.push_back({device, {}, false});
    return queues.back();
  }

  // Prepares the first task and returns its device.
  Device begin(const Variable& root, Tensor grad);
  void discover(const std::shared_ptr<Node>& root);
  void push(Device device, Task&& task);
  std::optional<Task> take(DeviceQueue& queue);
  bool run_one(DeviceQueue& queue);
  void execute(Task& task);
  void deliver(const Edge& edge, Tensor grad, Device here);
  void deliver_to_leaf(const Variable& leaf, Tensor grad);
  // A device's line of work: runs its tasks until the pass is over.
  void work(Device device);
  bool help_another_device();

  // What outlives the pass: its end calls, its error, and after an error the tasks that never ran.
  struct Remains {
    std::exception_ptr error;
    std::vector<std::function<void()>> at_end;
    std::vector<Task> not_run;
  };
  Remains take_remains();
};

// The pass that the calling thread is inside of; nullptr outside.
BackwardPass::State* running_backward_pass();
// Its number in an audit; 0 outside, and where nothing is recorded.
std::uint64_t audited_pass();

}  // namespace lockstep
