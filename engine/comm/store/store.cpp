#include "engine/comm/store/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "engine/core/log.h"

namespace lockstep::comm {
namespace {

// Until then a rank waits without a word.
constexpr double kPatience = 3;

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

}  // namespace

void Store::set(std::string_view key, std::string_view value) {
  ask({"set", std::string(key), std::string(value)});
}

std::optional<std::string> Store::try_get(std::string_view key) {
  const Message answer = ask({"try_get", std::string(key)});
  return answer.empty() ? std::nullopt : std::optional(answer[0]);
}

std::int64_t Store::add(std::string_view key, std::int64_t difference) {
  return number_in(ask({"add", std::string(key), std::to_string(difference)}).at(0)).value_or(0);
}

void Store::abort(const Error& why) {
  ask({"abort", encode(why, kMaxValueBytes)});
}

std::optional<std::string> Store::find(std::string_view key, runtime::Deadline deadline) {
  constexpr std::chrono::microseconds kFirstPause{100};
  constexpr std::chrono::microseconds kLongestPause{10'000};
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    // Read before the store is asked: what came in time counts, even if this thread runs late.
    const bool is_late = runtime::has_passed(deadline);
    if (auto value = try_get(key)) return value;
    if (is_late) return std::nullopt;
    std::this_thread::sleep_for(runtime::time_until(deadline, pause));
  }
}

std::string Store::get(std::string_view key, runtime::Deadline deadline) {
  auto value = find(key, deadline);
  require(value.has_value(), ErrorCode::Timeout, "store",
          "the key \"{}\" was not there at the deadline", key);
  return *std::move(value);
}

// Rank r announces itself by "name/r"; the last one opens "name/open".
void Store::barrier(std::string_view name, int rank, int world_size, double timeout_seconds) {
  const auto key = [&](auto what) { return fmt::format("{}/{}", name, what); };
  set(key(rank), "");
  if (add(key("count"), 1) == world_size) set(key("open"), "");
  const auto find_missing = [&] {
    std::vector<int> ranks;
    for (int r = 0; r < world_size; ++r) {
      if (!try_get(key(r))) ranks.push_back(r);
    }
    return ranks;
  };
  const runtime::Deadline end = runtime::deadline_after(timeout_seconds);
  if (find(key("open"), runtime::earlier(runtime::deadline_after(kPatience), end))) return;
  std::vector<int> missing = find_missing();
  if (!runtime::has_passed(end)) {
    if (!missing.empty()) {
      log_info("waiting for rank {} of {}, {} s at most", fmt::join(missing, ", "), world_size,
               timeout_seconds);
    }
    if (find(key("open"), end)) return;
    missing = find_missing();
  }
  fail(ErrorCode::Timeout, name, "{} of {} ranks came within {} s, missing: rank {}",
       static_cast<std::size_t>(world_size) - missing.size(), world_size, timeout_seconds,
       fmt::join(missing, ", "));
}

Message MemoryStore::ask(const Message& request) {
  const auto is = [&](std::string_view what, std::size_t num_arguments) {
    return request.size() == 1 + num_arguments && request[0] == what;
  };
  const std::lock_guard lock(mutex_);
  if (is("abort", 1)) {
    const Error why = decode_error(request[1]);
    failure_.set(Error(ErrorCode::Comm, why.operation(), why.message()));
    return {};
  }
  failure_.throw_if_set();
  if (is("set", 2)) {
    values_[request[1]] = request[2];
    return {};
  }
  if (is("try_get", 1)) {
    const auto entry = values_.find(request[1]);
    return entry == values_.end() ? Message{} : Message{entry->second};
  }
  if (is("add", 2)) {
    std::string& text = values_.try_emplace(request[1], "0").first->second;
    const auto number = number_in(text);
    const auto difference = number_in(request[2]);
    require(number && difference, ErrorCode::Usage, "store",
            "cannot add to the key \"{}\", which does not hold a number", request[1]);
    // Wraps around instead of overflowing.
    text = std::to_string(static_cast<std::int64_t>(static_cast<std::uint64_t>(*number) +
                                                    static_cast<std::uint64_t>(*difference)));
    return {text};
  }
  fail(ErrorCode::Usage, "store", "this is not a request");
}

Error ended_rank(std::string_view operation, int rank, std::string_view how) {
  return {ErrorCode::Comm, operation,
          fmt::format("rank {} {}: it was killed, or its host was cut off", rank, how)};
}

}  // namespace lockstep::comm
