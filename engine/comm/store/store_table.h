// The table behind a store: keys, values, and the bounds on both. One thread at a time.
#pragma once

#include <map>
#include <string>

#include "engine/comm/store/store.h"

namespace lockstep::comm {

class StoreTable {
 public:
  // All throw Error{Usage} for a key or a value beyond the limits of store.h.
  void set(std::string_view key, std::string_view value);
  const std::string& set_if_absent(std::string_view key, std::string_view value);
  // nullptr where there is none.
  const std::string* find(std::string_view key) const;
  std::int64_t add(std::string_view key, std::int64_t difference);
  bool erase(std::string_view key);
  std::size_t num_keys() const { return values_.size(); }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace lockstep::comm
