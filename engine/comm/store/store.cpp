#include "engine/comm/store/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <thread>

namespace lockstep::comm {

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

// In round g, rank r announces itself by "name/g/r"; the last rank opens "name/g/open". The count
// of all arrivals tells the round.
void Store::barrier(std::string_view name, int rank, int world_size, runtime::Deadline deadline) {
  const std::int64_t count = add(fmt::format("{}/count", name), 1);
  const std::int64_t round = (count - 1) / world_size;
  const auto key = [&](auto what) { return fmt::format("{}/{}/{}", name, round, what); };
  set(key(rank), "");
  if (count % world_size == 0) set(key("open"), "");
  if (find(key("open"), deadline)) return;
  std::string missing;
  for (int r = 0; r < world_size; ++r) {
    if (!try_get(key(r))) add_to_list(missing, std::to_string(r));
  }
  fail(ErrorCode::Timeout, "store",
       "rank {} waited in the barrier \"{}\": {} of {} ranks came, missing: rank {}", rank, name,
       count - round * world_size, world_size, missing);
}

// Throws after an abort.
std::unique_lock<std::mutex> MemoryStore::lock() {
  std::unique_lock lock(mutex_);
  failure_.throw_if_set();
  return lock;
}

void MemoryStore::set(std::string_view key, std::string_view value) {
  const auto locked = lock();
  values_.insert_or_assign(std::string(key), value);
}

std::string MemoryStore::set_if_absent(std::string_view key, std::string_view value) {
  const auto locked = lock();
  return values_.try_emplace(std::string(key), value).first->second;
}

std::optional<std::string> MemoryStore::try_get(std::string_view key) {
  const auto locked = lock();
  const auto entry = values_.find(key);
  return entry == values_.end() ? std::nullopt : std::optional(entry->second);
}

std::int64_t MemoryStore::add(std::string_view key, std::int64_t difference) {
  const auto locked = lock();
  std::string& text = values_.try_emplace(std::string(key), "0").first->second;
  std::int64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  require(error == std::errc() && rest == text.data() + text.size(), ErrorCode::Usage, "store",
          "cannot add to the key \"{}\", which holds no number", key);
  // Wraps around instead of overflowing.
  number = static_cast<std::int64_t>(static_cast<std::uint64_t>(number) +
                                     static_cast<std::uint64_t>(difference));
  text = std::to_string(number);
  return number;
}

void MemoryStore::abort(const Error& why) {
  const std::lock_guard lock(mutex_);
  failure_.set(abort_error(why));
}

Error abort_error(const Error& why) {
  return {ErrorCode::Comm, why.operation(), why.message()};
}

}  // namespace lockstep::comm
