// Who waits long for whom, for a person who looks at a rank that seems to do nothing.
//
// A watch is a thread that looks at the collectives of this process that are under way (those of
// the own implementation, over any transport). Without a watch a collective costs a branch more.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "engine/comm/collective_call.h"
#include "engine/comm/transport/transport.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

// While it lives, tell is called, in its thread, with words such as "all_reduce #7 ...: rank 3 is
// missing (its last call: ...)" when a collective of this process has taken so long, whenever the
// words change, and with no words when it is over.
class LongWaitWatch {
 public:
  explicit LongWaitWatch(std::function<void(const std::string& words)> tell,
                         double after_seconds = 2);
  ~LongWaitWatch();
  LongWaitWatch(const LongWaitWatch&) = delete;
  LongWaitWatch& operator=(const LongWaitWatch&) = delete;

 private:
  void watch();

  std::function<void(const std::string&)> tell_;
  double after_seconds_;
  runtime::WaitWord is_over_{0};
  std::thread thread_;
};

namespace detail {
inline std::atomic<int> num_watches{0};
}

// A collective that is under way, between its announcement and its end. REQUIRES: the transport
// lives longer.
class WatchedCall {
 public:
  WatchedCall(const Transport& transport, const CallHeader& call)
      : is_watched_(detail::num_watches.load(std::memory_order_relaxed) != 0) {
    if (is_watched_) [[unlikely]] {
      begin(transport, call);
    }
  }
  ~WatchedCall() {
    if (is_watched_) [[unlikely]] {
      end();
    }
  }
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

 private:
  void begin(const Transport& transport, const CallHeader& call);
  void end();

  bool is_watched_;
};

}  // namespace lockstep::comm
