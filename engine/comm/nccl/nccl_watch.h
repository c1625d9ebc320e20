// What becomes of a rank's calls: a thread that watches those which are under way, and that tells
// the other ranks, and hears from them, when something fails.
//
// In the store, under nccl/<group>/:
//   news         a number that grows with every change of the others
//   alarm        the rank that found something wrong first; it asks all others ...
//   answer/R     ... which then say what they called last: a line for each call given at once
//   verdict      what the asking rank made of the answers: the error of all ranks (error_bytes.h)
//   left/R       how many collectives rank R called before it left
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/comm/comm_errors.h"
#include "engine/comm/nccl/nccl_comm.h"
#include "engine/comm/nccl/nccl_group.h"
#include "engine/runtime/cuda/cuda_stream.h"

namespace lockstep::comm::nccl {

class Watch {
 public:
  // fault: of the device, which learns there that values are worthless.
  Watch(const NcclGroupOptions& options, runtime::cuda::DeviceFault* fault);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Watches NCCL's own errors of a communicator, and aborts it with the group.
  void add(std::shared_ptr<Comm> comm);

  // A call begins, or several that a caller gave at once: what this rank says when it is asked.
  void begin(std::span<const CollectiveCall> calls);
  // It is enqueued, and done when the event passes.
  void add(const CallHeader& call, std::shared_ptr<runtime::Event> done, double timeout_seconds);

  // What to check while NCCL is polled for this call: throws the group's error, also when the time
  // is over.
  Comm::Check check_of(const CallHeader& call, double timeout_seconds);

  void throw_if_failed() const { failure_.throw_if_set(); }
  bool has_failed() const { return failure_.is_set(); }
  // Breaks the group of all ranks with this error, unless it is broken already.
  void break_group(const Error& error);
  // Finds out why the call does not end, and breaks the group with what it found.
  void raise_alarm(const CallHeader& call, ErrorCode code, const std::string& symptom);

  // Waits until nothing is under way, or the group is broken; then says good-bye and watches no
  // more.
  void leave(std::uint64_t num_collectives);

 private:
  struct UnderWay {
    CallHeader call;
    std::shared_ptr<runtime::Event> done;
    runtime::Deadline deadline;
    double timeout_seconds = 0;
  };

  void stop();
  void main();
  void tick();
  std::optional<UnderWay> oldest();
  void check_comms(const UnderWay& oldest);
  void check_departures(const UnderWay& oldest);
  void hear_news();
  void say(std::string_view what, std::string_view value);
  void answer();
  std::string last_calls_text() const;
  Error verdict_of_alarm(const CallHeader& call, ErrorCode code, const std::string& symptom);
  void fail_here(const Error& error);
  std::string key(std::string_view what) const { return key_prefix_ + std::string(what); }

  const int rank_;
  const int world_size_;
  const std::shared_ptr<Store> store_;
  const std::string key_prefix_;
  runtime::cuda::DeviceFault* const fault_;

  mutable std::mutex mutex_;
  std::condition_variable stops_;
  bool is_stopping_ = false;
  FirstFailure failure_;
  std::optional<Error> store_error_;
  std::vector<CallHeader> last_calls_;  // given at once
  std::deque<UnderWay> under_way_;
  std::vector<std::shared_ptr<Comm>> comms_;
  // Of the watching thread.
  std::string news_;
  std::vector<std::optional<std::uint64_t>> left_;  // by rank: its number of collectives
  std::thread thread_;
};

}  // namespace lockstep::comm::nccl
