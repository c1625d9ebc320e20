#include "engine/comm/nccl/nccl_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <sstream>
#include <utility>

#include "engine/comm/comm_errors.h"
#include "engine/comm/nccl/nccl_library.h"
#include "engine/comm/nccl/nccl_meeting.h"

namespace lockstep::comm::nccl {
namespace {

// How often the thread looks; a rank that is alive answers within a few of these.
constexpr std::chrono::milliseconds kInterval{100};
constexpr std::chrono::microseconds kLeaveInterval{200};
constexpr double kAnswerSeconds = 2;
// Whoever does not ask waits for the one who does.
constexpr double kVerdictSeconds = 2 * kAnswerSeconds;

// Connecting is a call without a name.
std::string describe(const CallHeader& call) {
  return call.operation == Operation::none ? "connecting the ranks" : to_string(call);
}
const char* tag_of(const CallHeader& call) {
  return call.operation == Operation::none ? "nccl" : name_of(call.operation);
}

// The calls of a rank's answer: a line each, its number before its description.
using NumberedCalls = std::map<std::uint64_t, std::string>;

std::string line_of(const CallHeader& call) {
  return fmt::format("{} {}", call.sequence, to_string(call));
}

NumberedCalls calls_of(const std::string& answer) {
  NumberedCalls calls;
  std::istringstream stream(answer);
  std::string description;
  for (std::uint64_t number = 0;
       stream >> number && std::getline(stream >> std::ws, description);) {
    calls[number] = description;
  }
  return calls;
}

// The first calls of one number in which two ranks' different answers differ; where there are none,
// the last call of each. A rank's answer begins with its newest list, so that what only the other
// one names before it is done.
std::pair<std::string, std::string> first_difference(const NumberedCalls& a,
                                                     const NumberedCalls& b) {
  for (const auto& [number, call] : a) {
    const auto same = b.find(number);
    if (same != b.end() && same->second != call) return {call, same->second};
  }
  const auto last_of = [](const NumberedCalls& calls) {
    return calls.empty() ? to_string(CallHeader{}) : calls.rbegin()->second;
  };
  return {last_of(a), last_of(b)};
}

}  // namespace

Watch::Watch(const NcclGroupOptions& options, runtime::cuda::DeviceFault* fault)
    : rank_(options.rank),
      world_size_(options.world_size),
      store_(options.store),
      key_prefix_(key_of(options, "")),
      fault_(fault),
      left_(static_cast<std::size_t>(options.world_size)),
      thread_([this] { main(); }) {}

Watch::~Watch() {
  stop();
}

void Watch::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stops_.notify_all();
  thread_.join();
}

void Watch::add(std::shared_ptr<Comm> comm) {
  const std::lock_guard lock(mutex_);
  if (has_failed()) comm->abort();
  comms_.push_back(std::move(comm));
}

void Watch::begin(std::span<const CollectiveCall> calls) {
  if (is_point_to_point(calls[0].header.operation)) return;
  const std::lock_guard lock(mutex_);
  last_calls_.clear();
  for (const CollectiveCall& call : calls) last_calls_.push_back(call.header);
}

void Watch::add(const CallHeader& call, std::shared_ptr<runtime::Event> done,
                double timeout_seconds) {
  const std::lock_guard lock(mutex_);
  under_way_.push_back(
      {call, std::move(done), runtime::deadline_after(timeout_seconds), timeout_seconds});
}

Comm::Check Watch::check_of(const CallHeader& call, double timeout_seconds) {
  return [this, call, timeout_seconds, deadline = runtime::deadline_after(timeout_seconds)] {
    throw_if_failed();
    if (!runtime::has_passed(deadline)) return;
    raise_alarm(
        call, ErrorCode::Timeout,
        fmt::format("{} was not begun by all ranks within {} s", describe(call), timeout_seconds));
    throw_if_failed();
  };
}

void Watch::main() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (stops_.wait_for(lock, kInterval, [&] { return is_stopping_; })) return;
      if (has_failed()) continue;
    }
    tick();
  }
}

void Watch::tick() {
  const std::optional<UnderWay> waiting = oldest();
  try {
    if (!store_error_) hear_news();
  } catch (const Error& error) {
    // A rank that is done may outlive the store, one that waits for others may not.
    store_error_.emplace(error);
  }
  if (!waiting || has_failed()) return;
  if (store_error_) return fail_here(*store_error_);
  check_departures(*waiting);
  check_comms(*waiting);
  if (!runtime::has_passed(waiting->deadline) || has_failed()) return;
  raise_alarm(waiting->call, ErrorCode::Timeout, not_done(waiting->call, waiting->timeout_seconds));
}

// Forgets what is done; returns the call that is to be done first.
std::optional<Watch::UnderWay> Watch::oldest() {
  const std::lock_guard lock(mutex_);
  std::erase_if(under_way_, [](const UnderWay& call) { return call.done->has_passed(); });
  if (under_way_.empty()) return {};
  return under_way_.front();
}

void Watch::check_comms(const UnderWay& oldest) {
  std::vector<std::shared_ptr<Comm>> comms;
  {
    const std::lock_guard lock(mutex_);
    comms = comms_;
  }
  for (const auto& comm : comms) {
    const ncclResult_t state = comm->async_error();
    if (state == ncclSuccess || state == ncclInProgress) continue;
    raise_alarm(oldest.call, ErrorCode::Comm,
                fmt::format("{} failed in NCCL: {}", to_string(oldest.call),
                            library().get_error_string(state)));
  }
}

void Watch::check_departures(const UnderWay& oldest) {
  for (std::size_t rank = 0; rank < left_.size(); ++rank) {
    if (!left_[rank] || is_point_to_point(oldest.call.operation)) continue;
    if (oldest.call.sequence < *left_[rank]) continue;
    break_group(left_before(oldest.call, static_cast<int>(rank), *left_[rank]));
  }
}

void Watch::hear_news() {
  const std::optional<std::string> news = store_->try_get(key("news"));
  if (!news || *news == news_) return;
  news_ = *news;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (const auto left = store_->try_get(key(fmt::format("left/{}", rank)))) {
      left_[static_cast<std::size_t>(rank)] = std::strtoull(left->c_str(), nullptr, 10);
    }
  }
  if (const auto verdict = store_->try_get(key("verdict"))) {
    return fail_here(decode_error(*verdict));
  }
  if (!store_->try_get(key("alarm"))) return;
  answer();
  const runtime::Deadline deadline = runtime::deadline_after(kVerdictSeconds);
  fail_here(decode_error(store_->get(key("verdict"), deadline)));
}

void Watch::say(std::string_view what, std::string_view value) {
  store_->set_if_absent(key(what), value);
  store_->add(key("news"), 1);
}

std::string Watch::last_calls_text() const {
  const std::lock_guard lock(mutex_);
  if (last_calls_.empty()) return line_of(CallHeader{});
  std::string text;
  for (const CallHeader& call : last_calls_) {
    const std::string line = line_of(call);
    if (text.size() + line.size() + 1 > kMaxValueBytes) break;
    text += (text.empty() ? "" : "\n") + line;
  }
  return text;
}

void Watch::answer() {
  store_->set(key(fmt::format("answer/{}", rank_)), last_calls_text());
}

void Watch::raise_alarm(const CallHeader& call, ErrorCode code, const std::string& symptom) {
  try {
    const std::string me = std::to_string(rank_);
    const std::string asking = store_->set_if_absent(key("alarm"), me);
    store_->add(key("news"), 1);
    answer();
    if (asking == me) {
      break_group(verdict_of_alarm(call, code, symptom));
    } else {
      const runtime::Deadline deadline = runtime::deadline_after(kVerdictSeconds);
      fail_here(decode_error(store_->get(key("verdict"), deadline)));
    }
  } catch (const Error&) {
    // The store is gone, or the rank that asks has ended: what this rank saw has to do.
    fail_here(Error(code, tag_of(call), symptom));
  }
}

Error Watch::verdict_of_alarm(const CallHeader& call, ErrorCode code, const std::string& symptom) {
  const runtime::Deadline deadline = runtime::deadline_after(kAnswerSeconds);
  const std::string mine = last_calls_text();
  std::string silent;
  std::string different;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank == rank_) continue;
    try {
      const std::string last = store_->get(key(fmt::format("answer/{}", rank)), deadline);
      if (last == mine) continue;
      const auto [theirs, ours] = first_difference(calls_of(last), calls_of(mine));
      different += fmt::format("; rank {} last called {} while rank {} called {}", rank, theirs,
                               rank_, ours);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::Timeout) throw;
      add_to_list(silent, fmt::format("rank {}", rank));
    }
  }
  if (!silent.empty()) silent = fmt::format("; no answer from {} (ended or stopped)", silent);
  const std::string found = silent + different;
  return Error(code, tag_of(call),
               symptom + (found.empty() ? "; all ranks are alive and called the same" : found));
}

void Watch::break_group(const Error& error) {
  try {
    say("verdict", encode(error, kMaxValueBytes));
    fail_here(decode_error(*store_->try_get(key("verdict"))));
  } catch (const Error&) {
    fail_here(error);  // nobody can be told any more
  }
}

void Watch::fail_here(const Error& error) {
  std::vector<std::shared_ptr<Comm>> comms;
  {
    const std::lock_guard lock(mutex_);
    if (has_failed()) return;
    comms = comms_;
    // Before the device goes on with worthless values, and before anybody takes the call for done.
    if (!under_way_.empty()) runtime::cuda::report_from_host(*fault_, error);
    failure_.set(error);
  }
  for (const auto& comm : comms) comm->abort();
}

void Watch::leave(std::uint64_t num_collectives) {
  while (!has_failed() && oldest()) std::this_thread::sleep_for(kLeaveInterval);
  stop();
  if (!has_failed()) say(fmt::format("left/{}", rank_), std::to_string(num_collectives));
}

}  // namespace lockstep::comm::nccl
