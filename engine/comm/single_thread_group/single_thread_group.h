// Collectives of several devices that one thread drives, instead of a thread per rank.
//
// Rank r is devices[r]. A call gives the tensors of all ranks at once and enqueues the same plans
// with the same bits as a Communicator between threads would; no rank waits for another on the
// host. So a whole training step of all devices can be captured into one CUDA graph.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/comm/communicator.h"

namespace lockstep::comm {

class DeviceGroup;
struct CallHeader;

// The start of a collective, one event per rank: async calls follow these events. Empty: they
// follow all work that the compute streams hold.
using StartEvents = std::span<const std::shared_ptr<runtime::Event>>;

class SingleThreadGroup {
 public:
  // Throws Error{Usage} for no devices, Error{Device} unless they are of one type.
  explicit SingleThreadGroup(std::vector<Device> devices);
  ~SingleThreadGroup();
  SingleThreadGroup(const SingleThreadGroup&) = delete;
  SingleThreadGroup& operator=(const SingleThreadGroup&) = delete;

  const std::vector<Device>& devices() const { return devices_; }

  // Works in place, see Communicator. blocking: in the order of the compute streams. async: on the
  // communication streams, and Work::wait() lets the compute streams wait. On the CPU the calling
  // thread does everything at once, so both are done when the call returns.
  // options.plan automatic: two-shot in one pass (device_group.h).
  // Throws:   Error{DType} for elements that cannot be reduced with the op.
  // REQUIRES: buffers holds one tensor per device, on it, all of equal size and type; start is
  //           empty or holds one event per device.
  Work all_reduce(std::span<const Tensor> buffers, const CollectiveOptions& options = {},
                  StartEvents start = {});
  Work broadcast(std::span<const Tensor> buffers, int root, Launch launch = Launch::blocking);

 private:
  Work submit(const CallHeader& call, std::span<const Tensor> buffers, Launch launch,
              StartEvents start);

  std::vector<Device> devices_;
  std::unique_ptr<DeviceGroup> group_;
  bool has_async_work_ = false;  // on the communication streams, not followed by a blocking call
};

}  // namespace lockstep::comm
