// The transport of a group on several hosts: shared memory to the ranks of the own host, TCP to all
// others. Each pair of ranks talks through one of the two; calls and failures go through both.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/shm_group.h"

namespace lockstep::comm {

class ShmAndTcp final : public Transport {
 public:
  // hosts: TransportShape::hosts. to_host: between the ranks of this host, numbered 0, 1, ...
  // there. to_network: to all other ranks, with the numbers of the whole group.
  ShmAndTcp(std::vector<int> hosts, std::unique_ptr<ShmTransport> to_host,
            std::unique_ptr<Transport> to_network);

  void announce(const CallHeader& call, double timeout_seconds) override;
  CallHeader announced_by(int peer) override;

  void post(int to, Bytes data) override;
  const std::byte* take(int from, std::size_t num_bytes) override;
  void release(int from) override;

  void send_message(int to, const CallHeader& call, Bytes data) override;
  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override;

  void fail(const Error& error) noexcept override;
  void throw_if_failed() const override;
  std::string describe_missing(std::uint64_t sequence) const override;

 private:
  // The transport to a rank, and that rank's number there.
  struct Route {
    Transport* transport;
    int number;
  };
  const Route& route(int rank) const { return routes_[static_cast<std::size_t>(rank)]; }
  template <typename Use>
  auto waiting_for(int peer, const Use& use);

  std::unique_ptr<ShmTransport> to_host_;
  std::unique_ptr<Transport> to_network_;
  std::vector<Route> routes_;
};

}  // namespace lockstep::comm
