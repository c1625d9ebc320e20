#include "engine/launch/token_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "engine/comm/store/hello.h"
#include "engine/core/error.h"

namespace lockstep::launch {
namespace {

constexpr double kAnswerSeconds = 1;

struct Name {
  sockaddr_un address{};
  socklen_t num_bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// Abstract: its first byte is 0, and no file has it.
Name name_of(int port) {
  Name name;
  name.address.sun_family = AF_UNIX;
  const std::string text = fmt::format("lockstep-{}-{}", ::geteuid(), port);
  std::memcpy(name.address.sun_path + 1, text.data(), text.size());
  name.num_bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

comm::Socket new_socket() {
  comm::Socket made(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  require(made.is_open(), ErrorCode::Comm, "join",
          "this process may not open more files; raise the limit (ulimit -n)");
  return made;
}

// Whose process is at the other end?
bool is_of_this_user(const comm::Socket& connection) {
  ucred who{};
  socklen_t size = sizeof who;
  return ::getsockopt(connection.descriptor(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
         who.uid == ::geteuid();
}

}  // namespace

TokenSocket::TokenSocket(int port, std::string token)
    : token_(std::move(token)),
      listener_(new_socket()),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  const Name name = name_of(port);
  const bool listens = ::bind(listener_.descriptor(), name.get(), name.num_bytes) == 0 &&
                       ::listen(listener_.descriptor(), SOMAXCONN) == 0;
  const int number = errno;
  require(listens && wake_.is_open(), ErrorCode::Comm, "join",
          "cannot hand out a token for port {}: {}; choose another MASTER_PORT, or set "
          "LOCKSTEP_TOKEN to the same secret for all ranks",
          port, std::strerror(number));
  thread_ = std::thread([this] { answer_all(); });
}

TokenSocket::~TokenSocket() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.descriptor(), &one, sizeof one);
  thread_.join();
}

void TokenSocket::answer_all() {
  std::array<pollfd, 2> events{
      {{wake_.descriptor(), POLLIN, 0}, {listener_.descriptor(), POLLIN, 0}}};
  for (;;) {
    ::poll(events.data(), events.size(), -1);
    if (events[0].revents != 0) return;
    comm::Socket connection;
    const comm::AcceptResult result = comm::accept_from(listener_, connection);
    if (result == comm::AcceptResult::no_descriptors) {
      constexpr int kPauseMilliseconds = 50;
      ::poll(events.data(), 1, kPauseMilliseconds);
    }
    if (result != comm::AcceptResult::accepted || !is_of_this_user(connection)) continue;
    comm::send_some(connection, std::as_bytes(std::span(token_)));  // a new connection has room
  }
}

std::optional<std::string> ask_for_token(int port) {
  const comm::Socket connection = new_socket();
  const Name name = name_of(port);
  if (::connect(connection.descriptor(), name.get(), name.num_bytes) != 0) return std::nullopt;
  require(is_of_this_user(connection), ErrorCode::Comm, "join",
          "another user's process hands out tokens for port {}; choose another MASTER_PORT, or set "
          "LOCKSTEP_TOKEN to the same secret for all ranks",
          port);
  std::string token(comm::kMaxTokenBytes, '\0');
  std::size_t count = 0;
  const runtime::Deadline deadline = runtime::deadline_after(kAnswerSeconds);
  while (count < token.size() &&
         comm::receive_all(connection, std::as_writable_bytes(std::span(token)).subspan(count, 1),
                           deadline) == comm::IoResult::done) {
    ++count;
  }
  token.resize(count);
  if (count < comm::kMinTokenBytes) return std::nullopt;
  return token;
}

}  // namespace lockstep::launch
