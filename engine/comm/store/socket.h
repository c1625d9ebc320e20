// TCP sockets, owned, for the store and for the TCP transport: listening, connecting, and moving
// bytes until a deadline. All sockets are non-blocking and closed in child programs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "engine/core/files.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

class Socket : public FileDescriptor {
 public:
  using FileDescriptor::FileDescriptor;
  // Ends a connection without closing its descriptor, which another thread may be using: the other
  // end sees IoResult::closed, or IoResult::reset, which means try again.
  void shut_down() const noexcept;
  void reset() const noexcept;
};

// Listens on an address of this host: "127.0.0.1", "::" (every address), or a name, whose first
// address on this host it takes. Port 0 takes a free one.
// Throws Error{Comm}, which names the port if it is in use.
Socket listen_on(const std::string& name, std::uint16_t port);

// The reason why a host's name has no address; empty if it has one.
std::string why_unknown(const std::string& host);
// True if this host's loopback is among the name's addresses here.
bool is_loopback_here(const std::string& name);

// A connection that waits at a listener. If there is none, or this process may not have another
// descriptor, the socket is not open and errno has the reason.
Socket accept_from(const Socket& listener);

// Connects; tries again until the deadline while no process listens. Resolves names each time.
// Throws Error{Timeout} that names host, port and the last obstacle.
Socket connect_to(const std::string& host, std::uint16_t port, runtime::Deadline deadline);

std::uint16_t port_of(const Socket& socket);
// The addresses of this end of a connection and of the other, as text: "127.0.0.1", "fe80::1%eth0".
std::string local_address_of(const Socket& connection);
std::string remote_address_of(const Socket& connection);

// Waits until a poll() event such as POLLIN has come; returns false at the deadline.
bool wait_for_event(const Socket& socket, short event, runtime::Deadline deadline);

// closed: by the other end, on purpose or with its process. reset: the connection was cut.
enum class IoResult { done, closed, reset, timeout };
IoResult send_all(const Socket& connection, std::span<const std::byte> bytes,
                  runtime::Deadline deadline);
IoResult receive_all(const Socket& connection, std::span<std::byte> bytes,
                     runtime::Deadline deadline);

}  // namespace lockstep::comm
