#include "engine/comm/transport/link/fixed_link.h"

#include <algorithm>

namespace lockstep::comm {

FixedLink::FixedLink(const LinkSpec& link)
    : link_(link), latency_(act::from_seconds(link.latency_seconds)) {}

Time FixedLink::time_of(std::size_t num_bytes) const {
  return act::from_seconds(static_cast<double>(num_bytes) / link_.bytes_per_second);
}

Time FixedLink::begin_call(const CallHeader&) {
  return act::now();
}

Time FixedLink::begin_step(Time arrived) {
  return std::max(act::now(), arrived);
}

Time FixedLink::leave(int, Time ready, std::size_t num_bytes) {
  return egress_.occupy(ready, time_of(num_bytes)) + latency_;
}

Time FixedLink::arrive(int, Time arrival, std::size_t num_bytes) {
  const Time length = time_of(num_bytes);
  return ingress_.occupy(arrival - length, length);
}

Time FixedLink::begin_message(Bytes) {
  return act::now();
}

}  // namespace lockstep::comm
