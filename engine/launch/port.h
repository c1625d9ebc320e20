// The port where the ranks will meet, looked at before any rank starts.
#pragma once

#include "engine/core/files.h"

namespace lockstep::launch {

// Holds a port without listening: nobody gets it by asking for a free one, while a rank can still
// listen there.
class PortReservation {
 public:
  // Which addresses the port is for: this host's loopback or all of its addresses.
  enum class Scope { loopback, everywhere };

  // port 0: a free one.
  // Throws Error{Comm} that names the port and --standalone when somebody listens there.
  PortReservation(int port, Scope scope);

  int port() const { return port_; }

 private:
  FileDescriptor socket_;
  int port_ = 0;
};

}  // namespace lockstep::launch
