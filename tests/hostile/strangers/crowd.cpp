#include "tests/hostile/strangers/crowd.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <deque>
#include <random>

#include "engine/comm/store/socket.h"
#include "engine/comm/store/store_protocol.h"
#include "engine/comm/store/token_handshake.h"
#include "engine/comm/transport/tcp/frame.h"

namespace lockstep::testing {
namespace {

using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

constexpr int kNumThreads = 2;
constexpr std::size_t kMostOpen = 200;  // of a thread

Bytes noise(std::mt19937_64& random, std::size_t num_bytes) {
  Bytes bytes(num_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// What clients of another job say, some of it cut short.
Bytes next_words(std::mt19937_64& random) {
  const comm::ClientHandshake of_another_job("the token of another job", comm::kStorePurpose);
  const comm::Hello hello = of_another_job.hello();
  Bytes words;
  switch (random() % 7) {
    case 0:
      return {};
    case 1:
      return {hello.begin(), hello.begin() + static_cast<std::ptrdiff_t>(random() % hello.size())};
    case 2:
      return {hello.begin(), hello.end()};
    case 3:
      words = comm::StoreWriter(comm::StoreRequest::set).text("join/world_size").text("9").finish();
      break;
    case 4:
      words = comm::StoreWriter(comm::StoreRequest::abort).text("a stranger says so").finish();
      break;
    case 5: {
      const comm::HeaderBytes header = comm::encode({comm::FrameKind::goodbye, {}, 0});
      words.assign(header.begin(), header.end());
      break;
    }
    default:
      return noise(random, random() % 5000);
  }
  const Bytes rest = noise(random, random() % 100);
  words.insert(words.end(), rest.begin(), rest.end());
  return words;
}

// None when nobody listens.
comm::Socket connect_at_once(std::uint16_t port) {
  comm::Socket made(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int result =
      ::connect(made.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(made.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
  const bool is_refused = result != 0 && (errno != EINPROGRESS || error != 0);
  return is_refused ? comm::Socket() : std::move(made);
}

}  // namespace

Crowd::Crowd(std::uint16_t port, std::size_t connections_per_second, std::uint64_t seed) {
  for (int i = 0; i < kNumThreads; ++i) {
    const std::uint64_t own_seed = seed * kNumThreads + static_cast<std::uint64_t>(i);
    threads_.emplace_back(
        [=, this] { attack(port, connections_per_second / kNumThreads, own_seed); });
  }
}

Crowd::~Crowd() {
  is_over_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void Crowd::attack(std::uint16_t port, std::size_t connections_per_second, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::deque<comm::Socket> open;
  const std::chrono::nanoseconds pause(1'000'000'000 / connections_per_second);
  for (auto next = Clock::now(); !is_over_; next += pause) {
    std::this_thread::sleep_until(next);
    comm::Socket connection = connect_at_once(port);
    if (!connection.is_open()) {
      next = Clock::now() + std::chrono::milliseconds(1);
      continue;
    }
    ++num_connections_;
    comm::send_some(connection, next_words(random));
    open.push_back(std::move(connection));
    if (open.size() <= kMostOpen) continue;
    open.front().reset();  // a closed one would hold its port for a minute
    open.pop_front();
  }
  for (comm::Socket& connection : open) connection.reset();
}

}  // namespace lockstep::testing
