#include "engine/comm/store/store.h"

#include <fmt/format.h>

#include <charconv>

#include "engine/trace/span.h"

namespace lockstep::comm {

std::string Store::get(std::string_view key, runtime::Deadline deadline) {
  auto value = find(key, deadline);
  require(value.has_value(), ErrorCode::Timeout, "store",
          "the key \"{}\" was not there at the deadline", key);
  return *std::move(value);
}

std::optional<std::string> Store::try_get(std::string_view key) {
  return find(key, runtime::Clock::now());
}

void Store::wait(std::span<const std::string> keys, runtime::Deadline deadline) {
  for (const std::string& key : keys) get(key, deadline);
}

// In round g, rank r says by "name/g/r" that it has come; the last one opens "name/g/open". The
// count of all arrivals says which round it is. Keys of the round before are erased: all ranks are
// past it.
void Store::barrier(std::string_view name, int rank, int world_size, runtime::Deadline deadline) {
  const std::int64_t count = add(fmt::format("{}/count", name), 1);
  const std::int64_t round = (count - 1) / world_size;
  const auto key = [&](std::int64_t of_round, std::string_view what) {
    return fmt::format("{}/{}/{}", name, of_round, what);
  };
  erase(key(round - 1, std::to_string(rank)));
  set(key(round, std::to_string(rank)), "");
  if (count % world_size == 0) {
    erase(key(round - 1, "open"));
    set(key(round, "open"), "");
  }
  if (find(key(round, "open"), deadline)) return;
  std::string missing;
  for (int r = 0; r < world_size; ++r) {
    if (try_get(key(round, std::to_string(r)))) continue;
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", r);
  }
  fail(ErrorCode::Timeout, "store",
       "rank {} waited in the barrier \"{}\": {} of {} ranks came, missing: rank {}", rank, name,
       count - round * world_size, world_size, missing);
}

// REQUIRES: mutex_ is held.
std::string& MemoryStore::write(std::string_view key, std::string_view value) {
  require(!key.empty() && key.size() <= kMaxKeyBytes, ErrorCode::Usage, "store",
          "a key has 1 ... {} bytes, found {}", kMaxKeyBytes, key.size());
  require(value.size() <= kMaxValueBytes, ErrorCode::Usage, "store",
          "the value of a key has at most {} bytes, found {}", kMaxValueBytes, value.size());
  auto entry = values_.find(key);
  if (entry == values_.end()) {
    require(values_.size() < kMaxKeys, ErrorCode::Usage, "store",
            "holds at most {} keys; erase those that nobody needs any more", kMaxKeys);
    entry = values_.emplace(key, std::string()).first;
  }
  changed_.notify_all();
  return entry->second = value;
}

void MemoryStore::set(std::string_view key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  failure_.throw_if_set();
  write(key, value);
}

std::string MemoryStore::set_if_absent(std::string_view key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  failure_.throw_if_set();
  const auto entry = values_.find(key);
  return entry != values_.end() ? entry->second : write(key, value);
}

std::optional<std::string> MemoryStore::find(std::string_view key, runtime::Deadline deadline) {
  std::unique_lock lock(mutex_);
  auto entry = values_.end();
  const auto is_done = [&] {
    entry = values_.find(key);
    return failure_.is_set() || entry != values_.end();
  };
  if (!deadline) {
    changed_.wait(lock, is_done);
  } else if (!is_done()) {
    changed_.wait_until(lock, *deadline, is_done);
  }
  failure_.throw_if_set();
  return entry == values_.end() ? std::nullopt : std::optional(entry->second);
}

std::int64_t MemoryStore::add(std::string_view key, std::int64_t difference) {
  const std::lock_guard lock(mutex_);
  failure_.throw_if_set();
  std::int64_t number = 0;
  if (const auto entry = values_.find(key); entry != values_.end()) {
    const std::string& text = entry->second;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    require(error == std::errc() && rest == text.data() + text.size(), ErrorCode::Usage, "store",
            "cannot add to the key \"{}\", which holds no number", key);
  }
  // Wraps around instead of overflowing.
  number = static_cast<std::int64_t>(static_cast<std::uint64_t>(number) +
                                     static_cast<std::uint64_t>(difference));
  write(key, std::to_string(number));
  return number;
}

void MemoryStore::erase(std::string_view key) {
  const std::lock_guard lock(mutex_);
  failure_.throw_if_set();
  const auto entry = values_.find(key);
  if (entry != values_.end()) values_.erase(entry);
}

std::int64_t MemoryStore::clock_ns() {
  const std::lock_guard lock(mutex_);
  failure_.throw_if_set();
  return trace::now_ns();
}

void MemoryStore::abort(const Error& why) {
  const std::lock_guard lock(mutex_);
  failure_.set(abort_error(why));
  changed_.notify_all();
}

Error abort_error(const Error& why) {
  return {ErrorCode::Comm, why.operation(), why.message()};
}

}  // namespace lockstep::comm
