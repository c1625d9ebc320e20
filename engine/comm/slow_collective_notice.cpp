#include "engine/comm/slow_collective_notice.h"

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <mutex>

namespace lockstep::comm {
namespace {

struct CallUnderWay {
  const Group* group = nullptr;
  CallHeader header;
  runtime::Clock::time_point begin;
};

std::atomic<int> num_notices{0};
// Held while a call is described, so that its group lives.
std::mutex calls_mutex;
std::map<const NoticedCall*, CallUnderWay> calls;

// Describes the first call that is old enough, preferably one from which ranks are missing.
std::string describe_slow_collective(double after_seconds) {
  const std::lock_guard lock(calls_mutex);
  const auto now = runtime::Clock::now();
  std::string words;
  for (const auto& [key, call] : calls) {
    if (std::chrono::duration<double>(now - call.begin).count() < after_seconds) continue;
    const std::string missing = call.group->describe_missing(call.header.sequence);
    if (!missing.empty()) return fmt::format("{}: {}", to_string(call.header), missing);
    words = fmt::format("{}: all ranks have come to it, and not all go on", to_string(call.header));
  }
  return words;
}

}  // namespace

SlowCollectiveNotice::SlowCollectiveNotice(std::function<void(const std::string&)> tell,
                                           double after_seconds)
    : thread_([this, tell = std::move(tell), after_seconds] { watch(tell, after_seconds); }) {
  num_notices.fetch_add(1);
}

SlowCollectiveNotice::~SlowCollectiveNotice() {
  num_notices.fetch_sub(1);
  is_over_.store(1);
  thread_.join();
}

void SlowCollectiveNotice::watch(const std::function<void(const std::string&)>& tell,
                                 double after_seconds) {
  constexpr double kLookAgainSeconds = 0.25;
  std::string told;
  while (!is_over_.wait_while_equal(0, runtime::deadline_after(kLookAgainSeconds))) {
    const std::string words = describe_slow_collective(after_seconds);
    if (words != told) tell(words);
    told = words;
  }
}

NoticedCall::NoticedCall(const Group& group, const CallHeader& call)
    : is_noticed_(num_notices.load(std::memory_order_relaxed) != 0) {
  if (!is_noticed_) return;
  const std::lock_guard lock(calls_mutex);
  calls[this] = {&group, call, runtime::Clock::now()};
}

NoticedCall::~NoticedCall() {
  if (!is_noticed_) return;
  const std::lock_guard lock(calls_mutex);
  calls.erase(this);
}

}  // namespace lockstep::comm
