#include "engine/comm/store/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Returns an empty list, with the reason, if the name is unknown.
AddressList resolve(const std::string& host, std::uint16_t port, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status != 0) why = gai_strerror(status);
  return {status == 0 ? found : nullptr, &freeaddrinfo};
}

Socket new_socket(const addrinfo& address) {
  return Socket(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void set_option(const Socket& socket, int level, int option, int value) {
  setsockopt(socket.descriptor(), level, option, &value, sizeof value);
}

// get: getsockname for this end, getpeername for the other.
template <typename Get>
sockaddr_storage address_by(const Get& get, const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  get(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &size);
  return address;
}

std::string text_of(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  const int status =
      getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  require(status == 0, ErrorCode::Comm, "connect", "cannot name an end of a connection: {}",
          gai_strerror(status));
  const std::string found = text.data();
  // The prefix of an IPv4 address at a socket for both families.
  constexpr std::string_view kMapped = "::ffff:";
  return found.starts_with(kMapped) ? found.substr(kMapped.size()) : found;
}

std::string text_of(const sockaddr_storage& address) {
  return text_of(reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

// True if the connection to a free port of this host met itself, which can happen.
bool is_connected_to_itself(const Socket& socket) {
  const sockaddr_storage peer = address_by(getpeername, socket);
  const sockaddr_storage own = address_by(getsockname, socket);
  return std::memcmp(&peer, &own, sizeof peer) == 0;
}

// 0, or the errno of one attempt.
int try_to_connect(const addrinfo& address, Socket& socket, runtime::Deadline deadline) {
  socket = new_socket(address);
  if (!socket.is_open()) return errno;
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  if (connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (!wait_for_event(socket, POLLOUT, deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return error;
  }
  return is_connected_to_itself(socket) ? ECONNREFUSED : 0;
}

// Throws Error{Comm} that says why this host cannot listen there.
[[noreturn]] void fail_to_listen(const std::string& name, std::uint16_t port, int error) {
  require(error != EADDRINUSE, ErrorCode::Comm, "listen",
          "port {} of {} is in use by another program; choose another port", port, name);
  require(error != EADDRNOTAVAIL, ErrorCode::Comm, "listen",
          "cannot listen on port {} of {}: it is not an address of this host, where rank 0 "
          "runs; name one that is (0.0.0.0 for all of them)",
          port, name);
  fail(ErrorCode::Comm, "listen", "cannot listen on port {} of {}: {}", port, name,
       std::strerror(error));
}

}  // namespace

void Socket::shut_down() const noexcept {
  shutdown(descriptor(), SHUT_RDWR);
}

void Socket::reset() const noexcept {
  const sockaddr nowhere{AF_UNSPEC, {}};  // dissolves the connection
  connect(descriptor(), &nowhere, sizeof nowhere);
}

Socket listen_on(const std::string& name, std::uint16_t port) {
  std::string why;
  const AddressList list = resolve(name, port, why);
  require(list != nullptr, ErrorCode::Comm, "listen", "cannot find the address \"{}\": {}", name,
          why);
  int error = 0;
  for (const addrinfo* address = list.get(); address != nullptr; address = address->ai_next) {
    Socket socket = new_socket(*address);
    if (socket.is_open()) {
      set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
      if (address->ai_family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
      if (bind(socket.descriptor(), address->ai_addr, address->ai_addrlen) == 0 &&
          listen(socket.descriptor(), SOMAXCONN) == 0) {
        return socket;
      }
    }
    error = errno;
    if (error == EADDRINUSE) break;  // another job is here; a second address does not help
  }
  // The host's kernel lacks IPv6.
  if (error == EAFNOSUPPORT && name == "::") return listen_on("0.0.0.0", port);
  fail_to_listen(name, port, error);
}

std::string why_unknown(const std::string& host) {
  std::string why;
  resolve(host, 0, why);
  return why;
}

bool is_loopback_here(const std::string& name) {
  std::string why;
  const AddressList list = resolve(name, 0, why);
  for (const addrinfo* address = list.get(); address != nullptr; address = address->ai_next) {
    const std::string text = text_of(address->ai_addr, address->ai_addrlen);
    if (text == "::1" || text.starts_with("127.")) return true;
  }
  return false;
}

Socket accept_from(const Socket& listener) {
  Socket connection;
  do {
    connection =
        Socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  } while (!connection.is_open() && (errno == EINTR || errno == ECONNABORTED));
  if (connection.is_open()) set_option(connection, IPPROTO_TCP, TCP_NODELAY, 1);
  return connection;
}

Socket connect_to(const std::string& host, std::uint16_t port, runtime::Deadline deadline) {
  constexpr std::chrono::milliseconds kFirstPause{2};
  constexpr std::chrono::milliseconds kLongestPause{100};
  // Each of several addresses gets a turn, because any of them may swallow packets and never
  // answer.
  constexpr std::chrono::seconds kTurn{3};
  auto pause = kFirstPause;
  while (true) {
    std::string why;
    const AddressList list = resolve(host, port, why);
    for (const addrinfo* address = list.get(); address != nullptr; address = address->ai_next) {
      Socket socket;
      const runtime::Deadline turn = runtime::earlier(deadline, runtime::Clock::now() + kTurn);
      const int error = try_to_connect(*address, socket, turn);
      if (error == 0) return socket;
      why = std::strerror(error);
    }
    if (runtime::has_passed(deadline)) {
      fail(ErrorCode::Timeout, "connect", "nobody answered at {} port {} in time: {}", host, port,
           why);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

std::uint16_t port_of(const Socket& socket) {
  const sockaddr_storage address = address_by(getsockname, socket);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string local_address_of(const Socket& connection) {
  return text_of(address_by(getsockname, connection));
}

std::string remote_address_of(const Socket& connection) {
  return text_of(address_by(getpeername, connection));
}

bool wait_for_event(const Socket& socket, short event, runtime::Deadline deadline) {
  pollfd waiting{socket.descriptor(), event, 0};
  while (true) {
    const int ready = poll(&waiting, 1, runtime::milliseconds_until(deadline));
    if (ready > 0) return true;
    if (ready == 0 && runtime::has_passed(deadline)) return false;
  }
}

IoResult send_all(const Socket& connection, std::span<const std::byte> bytes,
                  runtime::Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(connection.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      return IoResult::reset;
    } else if (!wait_for_event(connection, POLLOUT, deadline)) {
      return IoResult::timeout;
    }
  }
  return IoResult::done;
}

IoResult receive_all(const Socket& connection, std::span<std::byte> bytes,
                     runtime::Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t received = recv(connection.descriptor(), bytes.data(), bytes.size(), 0);
    if (received > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(received));
    } else if (received == 0) {
      return IoResult::closed;
    } else if (errno != EAGAIN && errno != EINTR) {
      return IoResult::reset;
    } else if (!wait_for_event(connection, POLLIN, deadline)) {
      return IoResult::timeout;
    }
  }
  return IoResult::done;
}

}  // namespace lockstep::comm
