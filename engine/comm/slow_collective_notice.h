// Tells a person who looks at a rank that seems to do nothing whom it waits for.
//
// A notice is a thread that looks at the collectives of this process that are under way (those of
// the own implementation). Without one, a collective costs a branch more.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "engine/comm/collective_call.h"
#include "engine/comm/group.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

// While it lives, it calls tell, in its thread, with words such as "all_reduce #7 ...: rank 3 is
// missing (its last call: ...)" when a collective of this process has taken that long, whenever the
// words change, and with no words when it is over.
class SlowCollectiveNotice {
 public:
  explicit SlowCollectiveNotice(std::function<void(const std::string& words)> tell,
                                double after_seconds = 2);
  ~SlowCollectiveNotice();
  SlowCollectiveNotice(const SlowCollectiveNotice&) = delete;
  SlowCollectiveNotice& operator=(const SlowCollectiveNotice&) = delete;

 private:
  void watch();

  std::function<void(const std::string&)> tell_;
  double after_seconds_;
  runtime::WaitWord is_over_{0};
  std::thread thread_;
};

namespace detail {
inline std::atomic<int> num_notices{0};
}

// A collective that is under way, between its announcement and its end. REQUIRES: the transport
// lives longer.
class NoticedCall {
 public:
  NoticedCall(const Group& group, const CallHeader& call)
      : is_noticed_(detail::num_notices.load(std::memory_order_relaxed) != 0) {
    if (is_noticed_) [[unlikely]] {
      begin(group, call);
    }
  }
  ~NoticedCall() {
    if (is_noticed_) [[unlikely]] {
      end();
    }
  }
  NoticedCall(const NoticedCall&) = delete;
  NoticedCall& operator=(const NoticedCall&) = delete;

 private:
  void begin(const Group& group, const CallHeader& call);
  void end();

  bool is_noticed_;
};

}  // namespace lockstep::comm
