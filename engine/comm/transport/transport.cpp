#include "engine/comm/transport/transport.h"

namespace lockstep::comm {

void Transport::send_on_device(int, const CallHeader& call, DeviceLetter) {
  lockstep::fail(ErrorCode::Device, name_of(call.operation), "the {} transport moves CPU tensors",
                 name());
}

DeviceLetter Transport::receive_on_device(int, const CallHeader& call, double) {
  lockstep::fail(ErrorCode::Device, name_of(call.operation), "the {} transport moves CPU tensors",
                 name());
}

}  // namespace lockstep::comm
