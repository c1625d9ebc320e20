// The transport of a group on several hosts: shared memory to the ranks of the own host, TCP to all
// others. Each pair of ranks talks through one of the two; what concerns everybody (a call, a
// failure) goes through both.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/transport/shm/shm_transport.h"

namespace lockstep::comm {

struct MixedTransportOptions {
  std::vector<int> hosts;  // of every rank, see Transport::hosts()
  std::unique_ptr<ShmTransport>
      to_host;  // between the ranks of this host, numbered 0, 1, ... there
  std::unique_ptr<Transport> to_network;  // to all other ranks, with the numbers of the whole group
};

class MixedTransport final : public Transport {
 public:
  explicit MixedTransport(MixedTransportOptions options);

  int rank() const override { return to_network_->rank(); }
  int world_size() const override { return to_network_->world_size(); }
  std::string_view name() const override { return name_; }
  std::span<const int> hosts() const override { return hosts_; }

  void announce(const CallHeader& call, double timeout_seconds) override;
  CallHeader announced_by(int peer) override;

  void begin_data() override;
  void end_data() noexcept override;
  void abandon(const Error& error) noexcept override;

  std::size_t max_message_bytes() const override;
  Ticket post(int to, Bytes data) override;
  void wait_sent(int to, Ticket ticket) override;
  const std::byte* take(int from, std::size_t num_bytes) override;
  void release(int from) override;
  std::byte* staging(std::size_t num_bytes) override;
  void posted_from_staging(int to, Ticket ticket) override;

  void send_message(int to, const CallHeader& call, Bytes data) override;
  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override;

  void fail(const Error& error) override;
  void throw_if_failed() const override;
  std::string describe_missing(std::uint64_t sequence) const override;

 private:
  // The transport to a rank, and that rank's number there.
  struct Route {
    Transport* transport;
    int number;
  };
  template <typename Wait>
  auto waiting_for(int peer, const Wait& wait);
  template <typename Use>
  void failing_both(const Use& use);
  const Route& route(int rank) const { return routes_[static_cast<std::size_t>(rank)]; }

  std::vector<int> hosts_;
  std::string name_;
  std::unique_ptr<ShmTransport> to_host_;
  std::unique_ptr<Transport> to_network_;
  std::vector<Route> routes_;
};

}  // namespace lockstep::comm
