#include "engine/comm/store/memory_store.h"

#include "engine/core/error.h"
#include "engine/trace/span.h"

namespace lockstep::comm {

void MemoryStore::set(std::string_view key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  failure_.throw_if_set();
  table_.set(key, value);
  changed_.notify_all();
}

std::string MemoryStore::set_if_absent(std::string_view key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  failure_.throw_if_set();
  changed_.notify_all();
  return table_.set_if_absent(key, value);
}

std::string MemoryStore::get(std::string_view key, runtime::Deadline deadline) {
  const std::string wanted(key);
  wait({&wanted, 1}, deadline);
  const std::lock_guard lock(mutex_);
  const std::string* value = table_.find(key);
  require(value != nullptr, ErrorCode::Comm, "store",
          "the key \"{}\" was erased while it was waited for", key);
  return *value;
}

std::optional<std::string> MemoryStore::try_get(std::string_view key) {
  const std::lock_guard lock(mutex_);
  failure_.throw_if_set();
  const std::string* value = table_.find(key);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::int64_t MemoryStore::add(std::string_view key, std::int64_t difference) {
  const std::lock_guard lock(mutex_);
  failure_.throw_if_set();
  changed_.notify_all();
  return table_.add(key, difference);
}

void MemoryStore::wait(std::span<const std::string> keys, runtime::Deadline deadline) {
  std::unique_lock lock(mutex_);
  for (const std::string& key : keys) {
    const auto is_done = [&] { return failure_.is_set() || table_.find(key) != nullptr; };
    if (deadline) {
      require(changed_.wait_until(lock, *deadline, is_done), ErrorCode::Timeout, "store",
              "the key \"{}\" was not there at the deadline", key);
    } else {
      changed_.wait(lock, is_done);
    }
    failure_.throw_if_set();
  }
}

bool MemoryStore::erase(std::string_view key) {
  const std::lock_guard lock(mutex_);
  failure_.throw_if_set();
  return table_.erase(key);
}

std::size_t MemoryStore::num_keys() {
  const std::lock_guard lock(mutex_);
  failure_.throw_if_set();
  return table_.num_keys();
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

}  // namespace lockstep::comm
