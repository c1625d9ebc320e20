// The interface for programs that watch a training: the engine tells an Observer about rows,
// losses, gradients, optimizer steps, communication and files. Spans (span.h) tell how long things
// take.
//
// A process has one observer or none. An examining program installs one from outside; a test may
// install another. The engine asks first at each place, so without one it pays one branch:
//
//   if (trace::Observer* observer = trace::observer()) observer->batch(rows, num_rows);
//
// Threads: any thread calls an observer, several at once. thread_context() has the rank.
// Memory:  views are valid during the call; for tensors outside the CPU's memory they are empty
//          (host_values).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/core/device.h"
#include "engine/core/views.h"

namespace lockstep::trace {

// When an observer is told: as the thing is made, before it, after it (without an error), or after
// a thread has waited for it.
enum class Moment { made, begins, ends, waited };

// An operation that was recorded for backward (engine/autograd/node.h).
struct Operation {
  std::string_view name;
  std::size_t num_rows = 1;  // rows of its first input
  ConstTensorView result;
  std::vector<ConstTensorView> saved;
};

struct LeafGradient {
  std::uint64_t pass = 0;      // backward's number, from 1
  const void* leaf = nullptr;  // Variable::identity()
  std::size_t num_elements = 0;
  ConstTensorView gradient;  // the gradient that arrives
  ConstTensorView before;    // the gradient that it is added to; empty: none
};

struct OptimizerStep {
  struct Parameter {
    const void* leaf = nullptr;  // Variable::identity()
    std::string shape;
    std::size_t num_elements = 0;
    bool has_gradient = false;
    ConstTensorView value;
    ConstTensorView gradient;
  };
  const void* optimizer = nullptr;
  std::string_view name;       // "SGD", ...
  std::size_t num_states = 0;  // tensors that it keeps for each parameter, as large as that
  double learning_rate = 0;
  std::string device;  // the first parameter's
  std::vector<Parameter> parameters;
};

// A rank and the ranks with which it shares a communicator.
struct RankGroup {
  std::string name;  // the same in all its processes; empty: its ranks are threads of this process
  int world_size = 1;
  int rank = 0;  // this process's; threads have it in their ThreadContext
};

// One call of a communicator.
struct Call {
  std::uint32_t group = 0;  // the number from group_made()
  int rank = 0;
  std::uint64_t sequence = 0;
  std::string_view operation;
  std::string detail;            // whatever else the ranks must have alike: "sum", "from rank 0"
  int peer = -1;                 // send's and recv's
  std::uint64_t bytes_sent = 0;  // send's
  std::uint64_t num_elements = 0;
  DType dtype = DType::float32;
  ConstTensorView memory;
  bool is_async = false;  // true if it goes on after the call returns
};

// Data that reached a rank's memory, or a device of DataParallel's: what it received in one step of
// a collective's plan, or a copy from another device.
struct Arrival {
  std::string_view operation;  // a collective's; else "scatter", "replicate", "gather" or
                               // "reduce_gradients"
  std::uint64_t sequence = 0;  // Call::sequence; 0: of a copy
  std::size_t step = 0;        // number of the plan's step, from 0
  int to = 0;                  // a rank, or the index of a device
  std::span<const int> from;
  std::size_t offset = 0;  // where the chunk begins in its buffer, in elements
  bool adds = false;       // true: added to what lies there; false: takes its place
  ConstTensorView values;  // the chunk as it is now
};

// A module of a replica of DataParallel: the bytes of its C++ object.
struct ReplicaModule {
  std::string type_name;
  std::span<const std::byte> object;
};

// A named value of a fact. Pointers only identify things.
struct Field {
  std::string_view key;
  std::variant<std::string_view, std::uint64_t, double, bool, std::span<const std::string>,
               std::span<const void* const>>
      value;
};

class Observer {
 public:
  virtual ~Observer() = default;

  // --- from rows to gradients ---
  // The outermost module was called, with gradients on.
  virtual void batch(ConstTensorView /*rows*/, std::size_t /*num_rows*/) {}
  // A layer in training is about to use and change this running statistic.
  virtual void buffer(ConstTensorView /*values*/) {}
  // An operation was computed. Its node passes the result on to backward(), unless it is nullptr.
  virtual std::shared_ptr<const void> operation(const Operation&) { return nullptr; }
  // upstream: the gradient of the operation's result.
  virtual void backward(std::uint64_t /*pass*/, const std::shared_ptr<const void>& /*operation*/,
                        ConstTensorView /*upstream*/) {}
  virtual void leaf_gradient(const LeafGradient&) {}

  // --- from gradients to weights ---
  // made, begins, ends.
  virtual void step(const OptimizerStep&, Moment) {}

  // --- ranks ---
  // A name that no other group on this machine has; rank 0 asks, and tells the other processes.
  virtual std::string new_group_name() { return {}; }
  // Returns the number for calls and ThreadContext::group, 1 or more; 0: the group is not observed.
  virtual std::uint32_t group_made(const RankGroup&) { return 0; }
  // A rank's communicator was destroyed.
  virtual void group_left(std::uint32_t /*group*/, int /*rank*/) {}
  // Told at begins and ends; and at waited, for Work::wait() of an asynchronous call, which only
  // knows the sequence number and where the memory begins.
  virtual void call(const Call&, Moment) {}
  // True: collectives among threads run their plan step by step, also where a short cut gives the
  // same bits, and the observer is told of what follows. It never changes.
  virtual bool sees_arrivals() const { return false; }
  virtual void arrived(const Arrival&) {}
  // The parameters of the outermost module, before batch().
  virtual void parameters(std::span<const std::string> /*names*/,
                          std::span<const void* const> /*leaves*/) {}
  // Sharded training gives back a unit's whole parameters, of which this rank keeps `shard`.
  virtual void parameters_freed(ConstTensorView /*shard*/) {}
  // Told at begins and ends of a replica's forward pass, on its device.
  virtual void replica(Device, std::span<const ReplicaModule>, Moment) {}

  // --- facts that are only recorded ---
  //   moved      from, to, leaves                  Module::to()
  //   wrapped    wrapper, inside, leaves           Ddp; inside: type names of wrappers it holds
  //   unwrapped  wrapper
  //   loaded     model, loaded, missing, unexpected    load_state_dict()
  //   saved      path                              weights or a checkpoint
  //   sampler    kind, samples, batch, of_world, of_rank, seed, epoch, shuffled
  //   schedule   base, step, rate                  a learning rate was asked for
  //   clipped                                      this thread may have scaled its gradients down
  //   intended   invariant, reason                 a program breaks an invariant on purpose
  virtual void fact(std::string_view /*name*/, std::initializer_list<Field>) {}
};

namespace detail {
inline std::atomic<Observer*> installed{nullptr};
}

// The process's observer, or nullptr.
inline Observer* observer() {
  return detail::installed.load(std::memory_order_relaxed);
}

// REQUIRES: the observer lives until the process ends, or until it was replaced and nothing of the
// engine runs any more. Either all ranks of a job have an observer, or none has.
inline void set_observer(Observer* observer) {
  detail::installed.store(observer, std::memory_order_relaxed);
}

// Tells the observer a fact, if there is one.
inline void fact(std::string_view name, std::initializer_list<Field> fields) {
  if (Observer* const installed = observer()) installed->fact(name, fields);
}

// The observer, if it wants to be told of arrivals; else nullptr.
inline Observer* observer_of_arrivals() {
  Observer* const installed = observer();
  return installed != nullptr && installed->sees_arrivals() ? installed : nullptr;
}

inline std::uint64_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

// The values of a Tensor, which is a class of a higher layer; empty if it is undefined or not in
// the CPU's memory.
template <typename TensorClass>
ConstTensorView host_values(const TensorClass& tensor) {
  if (!tensor.defined() || tensor.device().type != DeviceType::cpu) return {};
  return tensor.view();
}

}  // namespace lockstep::trace
