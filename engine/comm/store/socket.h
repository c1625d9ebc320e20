// TCP sockets, owned, for the store and for the TCP transport: listening, connecting, and moving
// bytes until a deadline. All sockets are non-blocking and closed in child programs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/core/files.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

class Socket : public FileDescriptor {
 public:
  using FileDescriptor::FileDescriptor;
  // Closes a connection so that the other end sees IoResult::reset: try again.
  void reset() noexcept;
};

// Listens on an address of this host: "127.0.0.1", "::" (every address), or a name, of which it
// takes the first address that is this host's. Port 0 takes a free one.
// Throws Error{Comm}, which names the port when it is in use.
Socket listen_on(const std::string& name, std::uint16_t port);

// Is this host's loopback among the addresses that the name has here? Not for an unknown name.
bool is_loopback_here(const std::string& name);

// A waiting connection, if there is one and this process may have another descriptor.
enum class AcceptResult { accepted, none, no_descriptors };
AcceptResult accept_from(const Socket& listener, Socket& connection);

// Connects; tries again until the deadline while no process listens. Resolves names each time.
// Throws Error{Timeout} that names host, port and the last obstacle.
Socket connect_to(const std::string& host, std::uint16_t port, runtime::Deadline deadline);

std::uint16_t port_of(const Socket& socket);
// The addresses of this end of a connection and of the other, as text: "127.0.0.1", "fe80::1%eth0".
std::string local_address_of(const Socket& connection);
std::string remote_address_of(const Socket& connection);

// closed: by the other end, on purpose or with its process. reset: the connection was cut.
enum class IoResult { done, closed, reset, timeout };
IoResult send_all(const Socket& connection, std::span<const std::byte> bytes,
                  runtime::Deadline deadline);
IoResult receive_all(const Socket& connection, std::span<std::byte> bytes,
                     runtime::Deadline deadline);

// The bytes that one attempt moved; 0 when none can be moved now, none when the connection is over.
std::optional<std::size_t> send_some(const Socket& connection, std::span<const std::byte> bytes);
// done, closed or reset; count: 0 when nothing has come.
IoResult receive_some(const Socket& connection, std::span<std::byte> bytes, std::size_t& count);

}  // namespace lockstep::comm
