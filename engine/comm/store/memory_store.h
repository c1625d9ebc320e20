// A Store for ranks that are threads of one process; also the reference that the others are tested
// against.
#pragma once

#include <condition_variable>
#include <mutex>

#include "engine/comm/comm_errors.h"
#include "engine/comm/store/store_table.h"

namespace lockstep::comm {

class MemoryStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override;
  std::string set_if_absent(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, runtime::Deadline deadline) override;
  std::optional<std::string> try_get(std::string_view key) override;
  std::int64_t add(std::string_view key, std::int64_t difference) override;
  void wait(std::span<const std::string> keys, runtime::Deadline deadline) override;
  bool erase(std::string_view key) override;
  std::size_t num_keys() override;
  std::int64_t clock_ns() override;
  void abort(const Error& why) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  StoreTable table_;
  FirstFailure failure_;
};

}  // namespace lockstep::comm
