// Finds out, without the code under test, if this machine's loopback knows IPv6.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lockstep::testing {

inline bool has_ipv6() {
  const int listener = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return false;
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const int result = ::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::close(listener);
  return result == 0;
}

}  // namespace lockstep::testing
