#include "engine/comm/slow_collective_notice.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>

namespace lockstep::comm {
namespace {

constexpr double kLookAgainSeconds = 0.25;

struct Call {
  const Group* group = nullptr;
  CallHeader header;
  runtime::Clock::time_point begin;
};

// Held while a call is described, so that its group lives.
std::mutex mutex;
std::map<const NoticedCall*, Call> calls;

// Describes the first call that is old enough; prefers one that ranks are missing from.
std::string describe_slow_collective(double after_seconds) {
  const std::lock_guard lock(mutex);
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
    : tell_(std::move(tell)), after_seconds_(after_seconds), thread_([this] { watch(); }) {
  detail::num_notices.fetch_add(1);
}

SlowCollectiveNotice::~SlowCollectiveNotice() {
  detail::num_notices.fetch_sub(1);
  is_over_.store(1);
  thread_.join();
}

void SlowCollectiveNotice::watch() {
  std::string told;
  while (!is_over_.wait_while_equal(0, runtime::deadline_after(kLookAgainSeconds))) {
    std::string words = describe_slow_collective(after_seconds_);
    if (words == told) continue;
    tell_(words);
    told = std::move(words);
  }
}

void NoticedCall::begin(const Group& group, const CallHeader& call) {
  const std::lock_guard lock(mutex);
  calls[this] = {&group, call, runtime::Clock::now()};
}

void NoticedCall::end() {
  const std::lock_guard lock(mutex);
  calls.erase(this);
}

}  // namespace lockstep::comm
