#include "engine/comm/shm_and_tcp.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::comm {
namespace {

TransportShape both(std::vector<int> hosts, const TransportShape& shm, const TransportShape& tcp) {
  TransportShape shape = tcp;
  shape.name = fmt::format("{}+{}", shm.name, tcp.name);
  shape.max_message_bytes = std::min(shm.max_message_bytes, tcp.max_message_bytes);
  shape.hosts = std::move(hosts);
  return shape;
}

}  // namespace

ShmAndTcp::ShmAndTcp(std::vector<int> hosts, std::unique_ptr<ShmTransport> to_host,
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

// Ranks of this host that wait for this one shall see whom it waits for; the note stays after an
// error, since that is when they look. An error of one transport breaks the other one too.
template <typename Use>
auto ShmAndTcp::waiting_for(int peer, const Use& use) {
  const Route& to = route(peer);
  const bool is_elsewhere = to.transport != to_host_.get();
  if (is_elsewhere) to_host_->note_wait_elsewhere(peer);
  try {
    const auto result = use(*to.transport, to.number);
    if (is_elsewhere) to_host_->note_wait_elsewhere(ShmTransport::no_rank);
    return result;
  } catch (const Error& error) {
    fail(error);
    throw;
  }
}

void ShmAndTcp::announce(const CallHeader& call, double timeout_seconds) {
  try {
    to_network_->announce(call, timeout_seconds);
    to_host_->announce(call, timeout_seconds);
  } catch (const Error& error) {
    fail(error);
    throw;
  }
}

CallHeader ShmAndTcp::announced_by(int peer) {
  return waiting_for(peer, [](Transport& by, int number) { return by.announced_by(number); });
}

void ShmAndTcp::post(int to, Bytes data) {
  waiting_for(to, [&](Transport& by, int number) {
    by.post(number, data);
    return true;
  });
}

const std::byte* ShmAndTcp::take(int from, std::size_t num_bytes) {
  return waiting_for(from, [&](Transport& by, int number) { return by.take(number, num_bytes); });
}

void ShmAndTcp::release(int from) {
  route(from).transport->release(route(from).number);
}

void ShmAndTcp::send_message(int to, const CallHeader& call, Bytes data) {
  waiting_for(to, [&](Transport& by, int number) {
    by.send_message(number, call, data);
    return true;
  });
}

void ShmAndTcp::receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                                double timeout_seconds) {
  waiting_for(from, [&](Transport& by, int number) {
    by.receive_message(number, call, data, timeout_seconds);
    return true;
  });
}

void ShmAndTcp::fail(const Error& error) noexcept {
  to_network_->fail(error);
  to_host_->fail(error);
}

void ShmAndTcp::throw_if_failed() const {
  to_network_->throw_if_failed();
  to_host_->throw_if_failed();
}

std::string ShmAndTcp::describe_missing(std::uint64_t sequence) const {
  const std::string here = to_host_->describe_missing(sequence);
  const std::string elsewhere = to_network_->describe_missing(sequence);
  return here.empty() || elsewhere.empty() ? here + elsewhere : here + ", " + elsewhere;
}

}  // namespace lockstep::comm
