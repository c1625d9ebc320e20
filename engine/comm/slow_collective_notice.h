// Tells a person who watches an idle rank which rank it waits for.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "engine/comm/group.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

// While it lives, it calls tell in its own thread when a collective of this process (of the own
// implementation) has taken that long: with words such as "all_reduce #7 ...: rank 3 is missing
// (its last call: ...)" whenever the words change, and with an empty text when it is over.
class SlowCollectiveNotice {
 public:
  explicit SlowCollectiveNotice(std::function<void(const std::string& words)> tell,
                                double after_seconds = 2);
  ~SlowCollectiveNotice();

 private:
  void watch(const std::function<void(const std::string& words)>& tell, double after_seconds);

  runtime::WaitWord is_over_{0};
  std::thread thread_;
};

// A collective that is under way, between its announcement and its end. It costs a branch if there
// is no notice.
class NoticedCall {
 public:
  NoticedCall(const Group& group, const CallHeader& call);
  ~NoticedCall();

 private:
  bool is_noticed_;
};

}  // namespace lockstep::comm
