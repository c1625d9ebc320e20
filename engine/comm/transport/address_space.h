// What ranks of one address space, which are threads of one process, can do beside sending each
// other messages: use each other's memory, and meet to enqueue work on their devices.
#pragma once

#include "engine/comm/transport/device_parts.h"

namespace lockstep::comm {

class AddressSpace {
 public:
  // From begin_data() on, CallHeader::memory of a peer may be read and written here. Waits until
  // all ranks have called it in this collective: then nobody uses another one's memory.
  virtual void finish_shared() = 0;

  // Where ranks put down what each was called with. Used between begin_data() and finish_shared().
  virtual DeviceParts& device_parts() = 0;
  // Point to point. Error{Comm}, and the group's failure, for a message that differs in size, dtype
  // or type of device.
  virtual void send_on_device(int to, const CallHeader& call, DeviceLetter letter) = 0;
  virtual DeviceLetter receive_on_device(int from, const CallHeader& call,
                                         double timeout_seconds) = 0;

 protected:
  ~AddressSpace() = default;
};

}  // namespace lockstep::comm
