// Strangers: connections to a port at a given rate, whose bytes a seed decides.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace lockstep::testing {

// From now on until it is destroyed, strangers connect to 127.0.0.1, whether or not anybody
// listens. They say nothing, half a hello, a hello with a wrong signature, requests and frames as
// clients send them after a handshake, or noise; and keep the last few hundred connections open.
class Crowd {
 public:
  Crowd(std::uint16_t port, std::size_t connections_per_second, std::uint64_t seed);
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // Connections that somebody took, up to now.
  std::size_t num_connections() const { return num_connections_; }

 private:
  void attack(std::uint16_t port, std::size_t connections_per_second, std::uint64_t seed);

  std::atomic<bool> is_over_{false};
  std::atomic<std::size_t> num_connections_{0};
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::testing
