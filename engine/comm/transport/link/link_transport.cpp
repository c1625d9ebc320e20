#include "engine/comm/transport/link/link_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/comm/absent_rank.h"

namespace lockstep::comm {
namespace {

// A sleeper looks this often whether the group has failed.
constexpr Time kLongestSleep = std::chrono::milliseconds(10);

}  // namespace

LinkTransport::LinkTransport(std::unique_ptr<Transport> inner, std::unique_ptr<LinkModel> model)
    : stamps_(static_cast<std::size_t>(inner->world_size())),
      inner_(std::move(inner)),
      model_(std::move(model)),
      name_(fmt::format("{} behind a modelled link ({})", inner_->name(), model_->description())) {}

bool LinkTransport::is_far(int peer) const {
  if (peer == rank()) return false;
  const std::span<const int> hosts = inner_->hosts();
  return model_->between() == LinkModel::Between::all_ranks || hosts.empty() ||
         hosts[static_cast<std::size_t>(peer)] != hosts[static_cast<std::size_t>(rank())];
}

void LinkTransport::expect(Time arrival, int from) {
  if (arrival <= arrived_) return;
  arrived_ = arrival;
  arrived_from_ = from;
}

void LinkTransport::catch_up() {
  const Time moment = arrived_;
  if (act::now() >= moment) return;
  const Time limit = act::now() + act::from_seconds(timeout_seconds_);
  const act::ExactSleep sleep;
  while (true) {
    inner_->throw_if_failed();
    const Time time = act::now();
    if (time >= moment) return;
    if (time >= limit) break;
    sleep.until(std::min({moment, limit, time + kLongestSleep}));
  }
  const RankWait wait{rank(), arrived_from_, call_, timeout_seconds_};
  fail_and_throw(wait.late_over(model_->description()));
}

void LinkTransport::post_stamp(int to, Time time) {
  std::deque<Stamp>& stamps = stamps_[static_cast<std::size_t>(to)];
  // Of those that may still be read there are kMaxOpenMessages.
  while (stamps.size() > kMaxOpenMessages) {
    inner_->wait_sent(to, stamps.front().ticket);
    stamps.pop_front();
  }
  Stamp& stamp = stamps.emplace_back();
  stamp.time = time;
  stamp.ticket = inner_->post(to, std::as_bytes(std::span(&stamp.time, 1)));
}

Time LinkTransport::take_stamp(int from) {
  Time time;
  std::memcpy(&time, inner_->take(from, sizeof(time)), sizeof(time));
  inner_->release(from);
  return time;
}

void LinkTransport::announce(const CallHeader& call, double timeout_seconds) {
  call_ = call;
  timeout_seconds_ = timeout_seconds;
  arrived_ = announced_at_ = model_->begin_call(call);
  inner_->announce(call, timeout_seconds);
}

// Everybody's announcement has been read by now; here it gets the time that it takes.
void LinkTransport::begin_data() {
  inner_->begin_data();
  for (int peer = 0; peer < world_size(); ++peer) {
    if (is_far(peer)) post_stamp(peer, announced_at_ + model_->latency());
  }
  for (int peer = 0; peer < world_size(); ++peer) {
    if (is_far(peer)) expect(take_stamp(peer), peer);
  }
  begin_step();
}

void LinkTransport::end_data() {
  arrived_ = model_->end_call(arrived_);
  catch_up();
  // Peers may still read stamps of messages that nobody has waited for.
  for (int peer = 0; peer < world_size(); ++peer) {
    std::deque<Stamp>& stamps = stamps_[static_cast<std::size_t>(peer)];
    if (!stamps.empty()) inner_->wait_sent(peer, stamps.back().ticket);
    stamps.clear();
  }
  inner_->end_data();
}

void LinkTransport::begin_step() {
  step_begin_ = model_->begin_step(arrived_);
  arrived_ = std::max(arrived_, step_begin_);
}

void LinkTransport::abandon(const Error& error) noexcept {
  model_->abandon_call();
  inner_->abandon(error);
}

Ticket LinkTransport::post(int to, Bytes data) {
  if (is_far(to)) {
    post_stamp(to, model_->leave(to, step_begin_, data.size()));
  } else {
    catch_up();  // it carries no time
  }
  return inner_->post(to, data);
}

const std::byte* LinkTransport::take(int from, std::size_t num_bytes) {
  if (is_far(from)) expect(model_->arrive(from, take_stamp(from), num_bytes), from);
  return inner_->take(from, num_bytes);
}

void LinkTransport::send_message(int to, const CallHeader& call, Bytes data) {
  if (!is_far(to)) return inner_->send_message(to, call, data);
  const Time arrival = model_->leave(to, model_->begin_message(data), data.size());
  letter_.resize(sizeof(arrival) + data.size());
  std::memcpy(letter_.data(), &arrival, sizeof(arrival));
  std::ranges::copy(data, letter_.begin() + sizeof(arrival));
  inner_->send_message(to, call, letter_);
}

void LinkTransport::receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                                    double timeout_seconds) {
  if (!is_far(from)) return inner_->receive_message(from, call, data, timeout_seconds);
  call_ = call;
  timeout_seconds_ = timeout_seconds;
  arrived_ = {};
  Time arrival;
  letter_.resize(sizeof(arrival) + data.size());
  inner_->receive_message(from, call, letter_, timeout_seconds);
  std::memcpy(&arrival, letter_.data(), sizeof(arrival));
  std::copy(letter_.begin() + sizeof(arrival), letter_.end(), data.begin());
  expect(model_->arrive(from, arrival, data.size()), from);
  model_->end_message(arrived_);
  catch_up();
}

}  // namespace lockstep::comm
