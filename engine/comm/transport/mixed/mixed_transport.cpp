#include "engine/comm/transport/mixed/mixed_transport.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::comm {

MixedTransport::MixedTransport(MixedTransportOptions options)
    : hosts_(std::move(options.hosts)),
      name_(fmt::format("{}+{}", options.to_host->name(), options.to_network->name())),
      to_host_(std::move(options.to_host)),
      to_network_(std::move(options.to_network)) {
  const int my_host = hosts_[static_cast<std::size_t>(rank())];
  int number_on_host = 0;
  for (std::size_t r = 0; r < hosts_.size(); ++r) {
    const bool is_here = hosts_[r] == my_host;
    routes_.push_back(is_here ? Route{to_host_.get(), number_on_host++}
                              : Route{to_network_.get(), static_cast<int>(r)});
  }
}

// What one half has heard of, the other has to hear too: ranks of this host may wait in it.
template <typename Use>
void MixedTransport::failing_both(const Use& use) {
  try {
    use();
  } catch (const Error& error) {
    fail(error);
    throw;
  }
}

// Ranks of this host that wait for this one shall see whom it waits for. The note stays after an
// error: that is when they look.
template <typename Wait>
auto MixedTransport::waiting_for(int peer, const Wait& wait) {
  const Route& route = this->route(peer);
  if (route.transport == to_host_.get()) return wait(*route.transport, route.number);
  to_host_->note_wait_elsewhere(peer);
  const auto result = wait(*route.transport, route.number);
  to_host_->note_wait_elsewhere(ShmTransport::nobody);
  return result;
}

void MixedTransport::announce(const CallHeader& call, double timeout_seconds) {
  failing_both([&] {
    to_network_->announce(call, timeout_seconds);
    to_host_->announce(call, timeout_seconds);
  });
}

CallHeader MixedTransport::announced_by(int peer) {
  return waiting_for(peer, [](Transport& to, int number) { return to.announced_by(number); });
}

void MixedTransport::begin_data() {
  to_network_->begin_data();
  to_host_->begin_data();
}

void MixedTransport::end_data() noexcept {
  to_host_->end_data();
  to_network_->end_data();
}

void MixedTransport::abandon(const Error& error) noexcept {
  to_host_->abandon(error);
  to_network_->abandon(error);
}

std::size_t MixedTransport::max_message_bytes() const {
  return std::min(to_host_->max_message_bytes(), to_network_->max_message_bytes());
}

Ticket MixedTransport::post(int to, Bytes data) {
  return waiting_for(to, [&](Transport& by, int number) { return by.post(number, data); });
}

void MixedTransport::wait_sent(int to, Ticket ticket) {
  waiting_for(to, [&](Transport& by, int number) {
    by.wait_sent(number, ticket);
    return true;
  });
}

const std::byte* MixedTransport::take(int from, std::size_t num_bytes) {
  return waiting_for(from, [&](Transport& by, int number) { return by.take(number, num_bytes); });
}

void MixedTransport::release(int from) {
  route(from).transport->release(route(from).number);
}

// What is posted inside the host has left the staging memory when post() returns (shm), so the
// network's rules about it are enough.
std::byte* MixedTransport::staging(std::size_t num_bytes) {
  return to_network_->staging(num_bytes);
}

void MixedTransport::posted_from_staging(int to, Ticket ticket) {
  if (route(to).transport == to_network_.get()) to_network_->posted_from_staging(to, ticket);
}

void MixedTransport::send_message(int to, const CallHeader& call, Bytes data) {
  failing_both([&] { route(to).transport->send_message(route(to).number, call, data); });
}

void MixedTransport::receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                                     double timeout_seconds) {
  failing_both([&] {
    route(from).transport->receive_message(route(from).number, call, data, timeout_seconds);
  });
}

void MixedTransport::fail(const Error& error) {
  to_network_->fail(error);
  to_host_->fail(error);
}

void MixedTransport::throw_if_failed() const {
  to_network_->throw_if_failed();
  to_host_->throw_if_failed();
}

std::string MixedTransport::describe_missing(std::uint64_t sequence) const {
  const std::string here = to_host_->describe_missing(sequence);
  const std::string elsewhere = to_network_->describe_missing(sequence);
  return here.empty() || elsewhere.empty() ? here + elsewhere : here + ", " + elsewhere;
}

}  // namespace lockstep::comm
