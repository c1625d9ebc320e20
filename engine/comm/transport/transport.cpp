#include "engine/comm/transport/transport.h"

#include <cstdlib>

namespace lockstep::comm {

void Transport::fail_and_throw(const Error& error) {
  fail(error);
  throw_if_failed();
  std::abort();  // not reached: a group that failed throws
}

}  // namespace lockstep::comm
