// A rank's side of a group behind modelled links (link.h).
#include <algorithm>
#include <utility>

#include "engine/comm/group.h"
#include "engine/comm/link.h"

namespace lockstep::comm {
namespace {

using runtime::from_seconds;
using runtime::now;

GroupShape behind(const LinkModel& model, GroupShape shape) {
  shape.name += " behind a simulated link (" + model.description() + ")";
  if (!model.hosts().empty()) shape.hosts.assign(model.hosts().begin(), model.hosts().end());
  shape.shares_memory = false;
  shape.takes_cuda = false;
  // A spinning thread would take the cores from computation while modelled messages are under way.
  shape.slices = runtime::Worker::Slices::prompt;
  return shape;
}

// Everything goes through the inner group; this one works out when it would have arrived.
class LinkedGroup final : public Group {
 public:
  LinkedGroup(std::unique_ptr<Group> inner, std::unique_ptr<LinkModel> model)
      : Group(behind(*model, inner->shape())), inner_(std::move(inner)), model_(std::move(model)) {
    inner_->set_before_step([this](const plan::RankSchedule::Step& step) { exchange_times(step); });
  }

  void note_call(const CallHeader& call) override { model_->note_call(call); }

  void announce(const CollectiveCall& call) override {
    call_ = call.header;
    timeout_seconds_ = call.timeout_seconds;
    arrived_ = announced_at_ = model_->begin_call(call_);
    inner_->announce(call);
  }
  CallHeader announced_by(int peer) override { return inner_->announced_by(peer); }

  // All announcements have been read: they arrive a latency later.
  void begin_data() override {
    for (int peer = 0; peer < world_size(); ++peer) {
      if (is_far(peer)) post_time(peer, announced_at_ + model_->latency());
    }
    for (int peer = 0; peer < world_size(); ++peer) {
      if (is_far(peer)) expect(take_time(peer), peer);
    }
    arrived_ = std::max(arrived_, model_->begin_step(arrived_));
    inner_->begin_data();
  }
  void run_schedule(const plan::RankSchedule& schedule, TensorView buffer,
                    const Reduction& reduction) override {
    inner_->run_schedule(schedule, buffer, reduction);
  }
  void end_data() override {
    inner_->end_data();
    arrived_ = model_->end_call(arrived_);
    catch_up();
  }
  void abandon(const Error& error) noexcept override {
    model_->abandon_call();
    inner_->abandon(error);
  }

  void post_note(int to, std::int64_t note) override { inner_->post_note(to, note); }
  std::int64_t take_note(int from) override { return inner_->take_note(from); }

  // The time of its arrival goes ahead of a message.
  void send_message(int to, const CallHeader& call, Bytes data) override {
    Time arrival{};
    if (is_far(to)) arrival = model_->leave(to, model_->begin_message(data), data.size());
    inner_->send_message(to, call, std::as_bytes(std::span(&arrival, 1)));
    inner_->send_message(to, call, data);
  }
  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override {
    Time arrival;
    inner_->receive_message(from, call, std::as_writable_bytes(std::span(&arrival, 1)),
                            timeout_seconds);
    inner_->receive_message(from, call, data, timeout_seconds);
    if (!is_far(from)) return;
    call_ = call;
    timeout_seconds_ = timeout_seconds;
    arrived_ = {};
    expect(model_->arrive(from, arrival, data.size()), from);
    model_->end_message(arrived_);
    catch_up();
  }

  void fail(const Error& error) noexcept override { inner_->fail(error); }
  void throw_if_failed() const override { inner_->throw_if_failed(); }
  const Announcements* announced(int rank) const override { return inner_->announced(rank); }

 private:
  bool is_far(int peer) const {
    if (peer == rank()) return false;
    const std::vector<int>& hosts = inner_->shape().hosts;
    return model_->between() == LinkModel::Between::all_ranks || hosts.empty() ||
           hosts[static_cast<std::size_t>(peer)] != hosts[static_cast<std::size_t>(rank())];
  }

  void post_time(int to, Time time) { inner_->post_note(to, time.count()); }
  Time take_time(int from) { return Time(inner_->take_note(from)); }

  void expect(Time arrival, int from) {
    if (arrival <= arrived_) return;
    arrived_ = arrival;
    arrived_from_ = from;
  }

  // Works out when the messages of a step arrive.
  void exchange_times(const plan::RankSchedule::Step& step) {
    const std::size_t element_size = size_of(call_.dtype);
    const Time begin = model_->begin_step(arrived_);
    arrived_ = std::max(arrived_, begin);
    for (const plan::RankSchedule::Send& send : step.sends) {
      if (!is_far(send.to_rank)) {
        catch_up();  // this message carries no time
        continue;
      }
      post_time(send.to_rank, model_->leave(send.to_rank, begin, send.chunk.count * element_size));
    }
    for (const plan::Receive& receive : step.receives) {
      for (const int from : receive.from_ranks) {
        if (!is_far(from)) continue;
        expect(model_->arrive(from, take_time(from), receive.chunk.count * element_size), from);
      }
    }
  }

  // Sleeps until everything received has arrived.
  void catch_up() {
    // How often a sleeping rank checks if the group has failed.
    constexpr Time kLongestSleep = std::chrono::milliseconds(10);
    const Time moment = arrived_;
    if (now() >= moment) return;
    const Time limit = now() + from_seconds(timeout_seconds_);
    const runtime::ExactSleep sleep;
    while (true) {
      throw_if_failed();
      const Time time = now();
      if (time >= moment) return;
      if (time >= limit) break;
      sleep.until(std::min({moment, limit, time + kLongestSleep}));
    }
    fail_and_throw(waiting_for(arrived_from_).late_over(model_->description()));
  }

  std::unique_ptr<Group> inner_;
  std::unique_ptr<LinkModel> model_;
  Time arrived_{};  // when the last message that the call has received arrives
  int arrived_from_ = 0;
  Time announced_at_{};
};

}  // namespace

std::unique_ptr<Group> behind_links(std::unique_ptr<Group> group,
                                    std::unique_ptr<LinkModel> model) {
  return std::make_unique<LinkedGroup>(std::move(group), std::move(model));
}

}  // namespace lockstep::comm
