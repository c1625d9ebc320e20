// A transport behind modelled links: messages move as another transport moves them, but arrive when
// they would have arrived over the links of a LinkModel: one of a stated latency and bandwidth
// (fixed_link.h), or those of a machine that is acted out (acted_link.h). Who waits sleeps, so its
// core is free: communication that overlaps with computation costs no time, as on a machine whose
// network card does the work. Only CPU tensors.
//
// A rank does not sleep for every message: that would wake it a dozen times per call, each time at
// the cost of a rank that computes. When a message arrives travels ahead of it; the step that uses
// it and sends on begins at that time, on paper; and the call sleeps at its end, until all that it
// took would have arrived. Only a message to a rank that the links are not between, which carries
// no time, waits for those before it.
//
// A modelled time is a lower bound: computation that holds up the real transport delays a message
// further. Times are nanoseconds of the clock that all processes of one machine share, so ranks on
// different machines cannot use them.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/transport/link/link_model.h"
#include "engine/comm/transport/transport.h"

namespace lockstep::comm {

class LinkTransport final : public Transport {
 public:
  // REQUIRES: all ranks of the group give the same links.
  LinkTransport(std::unique_ptr<Transport> inner, std::unique_ptr<LinkModel> model);

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  // "shm+tcp behind a modelled link (50us,1GB/s)".
  std::string_view name() const override { return name_; }
  std::span<const int> hosts() const override {
    return model_->hosts().empty() ? inner_->hosts() : model_->hosts();
  }

  void note_call(const CallHeader& call) override { model_->note_call(call); }
  void announce(const CallHeader& call, double timeout_seconds) override;
  CallHeader announced_by(int peer) override { return inner_->announced_by(peer); }

  void begin_data() override;
  void end_data() override;
  void abandon(const Error& error) noexcept override;

  std::size_t max_message_bytes() const override { return inner_->max_message_bytes(); }
  void begin_step() override;
  Ticket post(int to, Bytes data) override;
  void wait_sent(int to, Ticket ticket) override { inner_->wait_sent(to, ticket); }
  const std::byte* take(int from, std::size_t num_bytes) override;
  void release(int from) override { inner_->release(from); }
  std::byte* staging(std::size_t num_bytes) override { return inner_->staging(num_bytes); }
  void posted_from_staging(int to, Ticket ticket) override {
    inner_->posted_from_staging(to, ticket);
  }

  void send_message(int to, const CallHeader& call, Bytes data) override;
  void receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                       double timeout_seconds) override;

  void fail(const Error& error) override { inner_->fail(error); }
  void throw_if_failed() const override { inner_->throw_if_failed(); }
  std::string describe_missing(std::uint64_t sequence) const override {
    return inner_->describe_missing(sequence);
  }

 private:
  // A moment on its way to a peer. It goes ahead of the message that it is about.
  struct Stamp {
    Ticket ticket = 0;
    Time time{};
  };

  bool is_far(int peer) const;
  void post_stamp(int to, Time time);
  Time take_stamp(int from);
  // What comes next in this call needs a message that arrives then.
  void expect(Time arrival, int from);
  // Sleeps until all that was expected has arrived. Throws the group's failure meanwhile, and fails
  // it at the time limit.
  void catch_up();

  std::vector<std::deque<Stamp>> stamps_;  // to each rank; inner_ reads them, so it goes first
  std::unique_ptr<Transport> inner_;
  std::unique_ptr<LinkModel> model_;
  std::string name_;
  Time arrived_{};  // when the last message that the call has taken arrives
  int arrived_from_ = 0;
  Time step_begin_{};
  std::vector<std::byte> letter_;  // a stamp and a message; kept between calls for its memory
  CallHeader call_;                // the current one
  Time announced_at_{};
  double timeout_seconds_ = 0;
};

}  // namespace lockstep::comm
