#include <fmt/format.h>

#include <algorithm>

#include "engine/comm/process_transports.h"

namespace lockstep::comm {
namespace {

GroupShape both(std::vector<int> hosts, const GroupShape& shm, const GroupShape& tcp) {
  GroupShape shape = tcp;
  shape.name = fmt::format("{}+{}", shm.name, tcp.name);
  shape.max_message_bytes = std::min(shm.max_message_bytes, tcp.max_message_bytes);
  shape.hosts = std::move(hosts);
  return shape;
}

// Each pair of ranks talks through one of the two transports; calls and failures go through both.
// An error of one breaks the other one too, because the call that gets it is abandoned.
class ShmAndTcp final : public Transport {
 public:
  ShmAndTcp(std::vector<int> hosts, std::unique_ptr<Transport> to_host,
            std::unique_ptr<Transport> to_network)
      : Transport(both(std::move(hosts), to_host->shape(), to_network->shape())),
        to_host_(std::move(to_host)),
        to_network_(std::move(to_network)) {
    int number_on_host = 0;
    const std::vector<int>& all_hosts = shape().hosts;
    for (std::size_t r = 0; r < all_hosts.size(); ++r) {
      const bool is_here = all_hosts[r] == all_hosts[static_cast<std::size_t>(rank())];
      routes_.push_back(is_here ? Route{to_host_.get(), number_on_host++}
                                : Route{to_network_.get(), static_cast<int>(r)});
    }
  }

  // The rank that waits for another host's rank knows best who is late, so it reports first.
  void announce(const CollectiveCall& call) override {
    constexpr double kLaterOnHostSeconds = 0.25;
    call_ = call.header;
    to_network_->announce(call);
    CollectiveCall on_host = call;
    on_host.timeout_seconds += kLaterOnHostSeconds;
    to_host_->announce(on_host);
  }

  CallHeader announced_by(int peer) override {
    return route(peer).transport->announced_by(route(peer).number);
  }

  void post(Use use, int to, const CallHeader& call, Bytes data) override {
    route(to).transport->post(use, route(to).number, call, data);
  }

  Message take(Use use, int from) override {
    return route(from).transport->take(use, route(from).number);
  }

  void release(Use use, int from) override {
    route(from).transport->release(use, route(from).number);
  }

  void send_message(int to, const CallHeader& call, Bytes data) override {
    route(to).transport->send_message(route(to).number, call, data);
  }

  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override {
    route(from).transport->receive_message(route(from).number, call, data, timeout_seconds);
  }

  void fail(const Error& error) noexcept override {
    to_network_->fail(error);
    to_host_->fail(error);
  }

  void throw_if_failed() const override {
    to_network_->throw_if_failed();
    to_host_->throw_if_failed();
  }

  const Announcements* announced(int rank) const override {
    return route(rank).transport->announced(route(rank).number);
  }

 private:
  // The transport to a rank, and that rank's number there.
  struct Route {
    Transport* transport;
    int number;
  };
  const Route& route(int rank) const { return routes_[static_cast<std::size_t>(rank)]; }

  std::unique_ptr<Transport> to_host_;
  std::unique_ptr<Transport> to_network_;
  std::vector<Route> routes_;
};

}  // namespace

std::unique_ptr<Transport> shm_and_tcp(std::vector<int> hosts, std::unique_ptr<Transport> to_host,
                                       std::unique_ptr<Transport> to_network) {
  return std::make_unique<ShmAndTcp>(std::move(hosts), std::move(to_host), std::move(to_network));
}

}  // namespace lockstep::comm
