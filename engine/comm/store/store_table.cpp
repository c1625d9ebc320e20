#include "engine/comm/store/store_table.h"

#include <charconv>

#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

void require_key(std::string_view key) {
  require(!key.empty() && key.size() <= kMaxKeyBytes, ErrorCode::Usage, "store",
          "a key has 1 ... {} bytes, found {}", kMaxKeyBytes, key.size());
}

}  // namespace

void StoreTable::set(std::string_view key, std::string_view value) {
  require_key(key);
  require(value.size() <= kMaxValueBytes, ErrorCode::Usage, "store",
          "the value of a key has at most {} bytes, found {}", kMaxValueBytes, value.size());
  auto entry = values_.find(key);
  if (entry == values_.end()) {
    require(values_.size() < kMaxKeys, ErrorCode::Usage, "store",
            "holds at most {} keys; erase those that nobody needs any more", kMaxKeys);
    entry = values_.emplace(key, std::string()).first;
  }
  entry->second = value;
}

const std::string& StoreTable::set_if_absent(std::string_view key, std::string_view value) {
  if (find(key) == nullptr) set(key, value);
  return *find(key);
}

const std::string* StoreTable::find(std::string_view key) const {
  const auto entry = values_.find(key);
  return entry == values_.end() ? nullptr : &entry->second;
}

std::int64_t StoreTable::add(std::string_view key, std::int64_t difference) {
  std::int64_t number = 0;
  if (const std::string* text = find(key)) {
    const char* end = text->data() + text->size();
    const auto [rest, error] = std::from_chars(text->data(), end, number);
    require(error == std::errc() && rest == end, ErrorCode::Usage, "store",
            "cannot add to the key \"{}\", which holds no number", key);
  }
  // Wraps around instead of overflowing.
  number = static_cast<std::int64_t>(static_cast<std::uint64_t>(number) +
                                     static_cast<std::uint64_t>(difference));
  set(key, std::to_string(number));
  return number;
}

bool StoreTable::erase(std::string_view key) {
  const auto entry = values_.find(key);
  if (entry == values_.end()) return false;
  values_.erase(entry);
  return true;
}

}  // namespace lockstep::comm
