#include "engine/launch/port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "engine/core/error.h"

namespace lockstep::launch {

// Linux lets several sockets have one port as long as all of them say SO_REUSEADDR and none of
// them listens, or only one does.
PortReservation::PortReservation(int port, Scope scope)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int socket = socket_.descriptor();
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(scope == Scope::loopback ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket, generic, length) != 0 || ::getsockname(socket, generic, &length) != 0) {
    const int number = errno;
    require(number != EADDRINUSE, ErrorCode::Comm, "run",
            "port {} is in use; choose another one with --master-port, or let --standalone take a "
            "free one",
            port);
    fail(ErrorCode::Comm, "run", "cannot take port {}: {}", port, std::strerror(number));
  }
  port_ = ntohs(address.sin_port);
}

}  // namespace lockstep::launch
