// A machine that is simulated in slow motion: devices of the CPU take the places of a topology's
// GPUs. They compute and send everything for real, but each kernel ends, and each message arrives,
// only when it would have on that machine, times a factor. So the engine's own threads, buckets,
// hooks and plans show what they would do there, and a person can watch.
//
// Two decorators drive it, and the engine knows neither: paced_backend.h gives a kernel's inputs,
// outputs and cost, and simulated_link.h a message's.
//
// Work begins when its inputs are there, not when its thread comes to it: a kernel, once its device
// has done the one before and the memory that it reads has been written (MemoryTimes); a message,
// once its data has. So threads that are a little late cost nothing, and the figures are the
// modelled machine's as long as the real cores keep up (kLateSpan).
//
// A topology has a price for everything, the same as for the predictor (simulate/predict):
//   kernels     predict/kernel_cost.h; devices of one kind differ (predict::device_slowness)
//   messages    over the links between two devices, shared with all others on their route
//   overlap     predict::kOverlapInterference (DeviceLanes)
// A topology without figures for a GPU's own copies charges none: a batch is there when it is
// needed.
//
// Threads: every method may be called from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/comm/link.h"
#include "engine/runtime/steady_time.h"
#include "engine/trace/span.h"
#include "simulate/predict/network.h"
#include "simulate/predict/topology.h"
#include "simulate/slow_motion/device_lanes.h"

namespace lockstep::slow_motion {

using runtime::Time;

struct Memory {
  const void* data = nullptr;
  std::size_t num_bytes = 0;
};

inline constexpr int kNoDevice = -1;

enum class Writer { kernel, collective };

struct Written {
  Time time{};  // 0: never, as far as is known
  int device = kNoDevice;
  Writer writer = Writer::kernel;
};

// Which device wrote a block of memory last, and when that would have been done on the simulated
// machine. A kernel or a message waits for the memory that it reads, and for nothing else:
// host threads that wait for each other need not be known. Any thread may use it at any time.
class MemoryTimes {
 public:
  void write(const Memory& memory, const Written& written);
  // The latest write to any part of the memory.
  Written last_write(const Memory& memory) const;

 private:
  struct Block {
    std::uintptr_t end;
    Written written;
  };
  using Blocks = std::map<std::uintptr_t, Block>;  // keyed by their begin; disjoint

  // The first block that ends after `begin`.
  Blocks::const_iterator first_behind(std::uintptr_t begin) const;

  mutable std::mutex mutex_;
  Blocks blocks_;
};

// Spans name a device by its own number, or by its place among the participants, which is its rank.
enum class Tracks { devices, ranks };

struct MachineOptions {
  predict::Topology topology;
  // The devices cpu:i that take part; each stands for GPU i of the topology.
  std::vector<int> devices;
  Tracks tracks = Tracks::ranks;
  double factor = 1;  // how many times slower than the modelled machine
  Pace pace = Pace::sleeping;
  Time patience = std::chrono::milliseconds(2);  // DeviceLanes::Options
};

// The name of a device's spans whose thread came so late that its kernel was delayed: the real
// cores could not keep up.
inline constexpr const char* kLateSpan = "late";

// Simulated devices record these in addition to the phases of a step: their spans that are kernels,
// and those named kLateSpan. All other spans are the host's.
bool is_kernel(const trace::Span& span);
bool is_late(const trace::Span& span);

// One kernel, with the time that it takes alone on the modelled device.
struct Kernel {
  const char* name = "";  // must outlive the program
  double seconds = 0;
  // A copy from another device's memory is only a message.
  enum class Kind { computes, copies } kind = Kind::computes;
  std::span<const Memory> reads = {};
  std::span<const Memory> writes = {};
};

class Machine {
 public:
  // Throws Error{Usage} for a device that the topology lacks.
  explicit Machine(const MachineOptions& options);
  ~Machine();

  const predict::Topology& topology() const { return options_.topology; }
  const predict::Network& network() const { return network_; }  // its constant functions alone
  double factor() const { return options_.factor; }
  const std::vector<int>& devices() const { return options_.devices; }

  // Runs the real kernel and returns when the modelled one would be done. If it reads memory that
  // another device wrote last, that memory is first sent here. Inside a collective (Collective) its
  // time is not charged, because the sender charges the cost. A device that takes no part is the
  // host, which is not slowed down.
  void run(int device, const Kernel& kernel, const std::function<void()>& real);
  // The memory was written at no cost: a batch that was loaded.
  void give(int device, const Memory& memory);

  // --- for messages between devices ---
  // The device offers memory to others as soon as it has done its work so far.
  void offer(int device, const Memory& memory);
  Time origin() const { return origin_; }
  Time written(const Memory& memory) const;
  struct Delivery {
    Time sent{};     // its last byte has passed the slowest link
    Time arrives{};  // a latency later
  };
  // Sends a message that may leave at `ready`. It occupies the links.
  Delivery deliver(int from, int to, Time ready, std::size_t num_bytes);
  // When the device's communication lane has no more work.
  Time communicated(int device) const;
  // A piece of a collective occupies the device's communication lane from `begin` on for `alone`.
  // Sleeps until it is done, and returns when that is.
  Time communicate(int device, Time begin, Time alone);
  // The collective's result is in memory; if it is not known in which, everything computed next
  // waits for it.
  void finish_collective(int device, const Memory& result, Time end);
  // A modelled length of time, times the factor.
  Time scaled(double seconds) const { return runtime::from_seconds(seconds * options_.factor); }

  // Marks the calling thread as inside a collective, and counts how many bytes its kernels added to
  // others there since the last take_added_bytes().
  struct Collective {
    static void enter();
    static void leave();
    static void add_bytes(double num_bytes);
    static double take_added_bytes();
  };
  // For a person who watches; nullptr: none.
  void set_communication(int device, const char* name);

  // --- how it went ---
  // When the device has done all its work so far, as far as its host knows.
  Time reached(int device) const;
  // The same, or now if that is so long ago that the device must be idle.
  Time stream_time(int device) const;
  // When the last device has done all its work.
  Time end() const;
  std::size_t num_kernels() const { return num_kernels_.load(std::memory_order_relaxed); }

  // A device's current activity, for a person who watches.
  struct DeviceState {
    const char* kernel = nullptr;         // the current one, or nullptr
    const char* communication = nullptr;  // the current one, or nullptr
    double busy_seconds = 0;              // modelled time in kernels
  };
  std::vector<DeviceState> device_states() const;  // ordered as options.devices
  // Bytes that have been sent over each hop (predict::Hop) so far.
  std::vector<double> bytes_by_hop() const;

 private:
  struct Device;

  struct SpanKind {
    const char* name;
    trace::Lane lane;
    trace::Category category;
    std::int64_t sequence = trace::kNoSequence;
    std::size_t num_bytes = 0;
  };

  bool takes_part(int index) const;
  Device& device(int index) const;
  // Adds a span of the device to the recording, unless it is empty.
  void record(const Device& device, const SpanKind& kind, Time begin, Time end) const;
  Time source_ready(const Written& source) const;
  struct Inputs {
    Delivery delivery;
    std::size_t num_bytes = 0;      // bytes of messages
    bool is_of_collective = false;  // the input that arrives last
  };
  // Sends the kernel the memory that it reads from other devices.
  Inputs fetch_inputs(int device, Time ready, std::span<const Memory> reads);

  const MachineOptions options_;
  const Time origin_;
  MemoryTimes memory_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<int> places_;  // index: cpu:i; value: its place in devices_, or -1

  mutable std::mutex network_mutex_;  // guards the members below
  predict::Network network_;
  std::vector<comm::Port> hops_;
  std::vector<double> bytes_by_hop_;

  std::atomic<std::size_t> num_kernels_{0};
};

namespace detail {
inline std::atomic<Machine*> installed_machine{nullptr};
}

// The machine that is installed in this process, or nullptr.
inline Machine* machine() {
  return detail::installed_machine.load(std::memory_order_acquire);
}

// Installs a machine for a scope: from now on CPU devices are paced. Groups of ranks made
// meanwhile take their options from with_simulated_links() (simulated_link.h). REQUIRES: no work
// runs on them meanwhile, and no other machine is installed.
class InstalledMachine {
 public:
  explicit InstalledMachine(Machine& machine);
  ~InstalledMachine();
  InstalledMachine(const InstalledMachine&) = delete;
  InstalledMachine& operator=(const InstalledMachine&) = delete;
};

}  // namespace lockstep::slow_motion
