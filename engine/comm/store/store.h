// Store: a table of keys and bytes that all ranks of a job share. They find each other with it
// before they are connected (the rendezvous). Read this header first.
//
// A rank writes its address under a key of its own and reads those of the others. A wait for a key
// ends in one of three ways: the key is there, the deadline has passed, or the job was aborted.
//
//   MemoryStore      the table, for ranks that are threads of one process
//   TcpStoreServer   serves a MemoryStore to other processes (tcp_store.h)
//   TcpStoreClient   a Store whose table is in such a server
//
// Keys and values are bytes; no value is larger than kMaxValueBytes.
// Errors:  Error{Timeout} names the key. Error{Comm} if the server is gone or the job was aborted;
//          it says why.
// Threads: any thread may call a Store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/comm/comm_errors.h"
#include "engine/core/error.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

inline constexpr std::size_t kMaxValueBytes = 1024 * 1024;

// Under this key a server records the first process that it refused as a rank, and why.
inline constexpr const char* kRefusedKey = "store/refused";

class Store {
 public:
  virtual ~Store() = default;

  // Writes a key, whether or not it exists.
  virtual void set(std::string_view key, std::string_view value) = 0;
  // Writes a key that does not exist; returns the key's present value. So the first of several
  // writers wins and all of them learn who won.
  virtual std::string set_if_absent(std::string_view key, std::string_view value) = 0;
  // The key's value, if it is there now.
  virtual std::optional<std::string> try_get(std::string_view key) = 0;
  // Adds to a number (0 if there is none) and returns the sum. The value reads as decimal text.
  // Error{Usage} if the key holds something else.
  virtual std::int64_t add(std::string_view key, std::int64_t difference) = 0;
  // Ends the rendezvous: every pending and later call of every rank throws abort_error(why). Only
  // the first abort counts.
  virtual void abort(const Error& why) = 0;

  // Waits until the key exists, and returns its value; empty at the deadline. It asks again and
  // again, at most ten milliseconds apart.
  std::optional<std::string> find(std::string_view key, runtime::Deadline deadline);
  // Like find(), but throws Error{Timeout} at the deadline.
  std::string get(std::string_view key, runtime::Deadline deadline);
  // Returns when all ranks 0 ... world_size - 1 have called it with this name. A name may be used
  // again after a barrier that succeeded. Error{Timeout} names the ranks that have not come.
  void barrier(std::string_view name, int rank, int world_size, runtime::Deadline deadline);
};

class MemoryStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override;
  std::string set_if_absent(std::string_view key, std::string_view value) override;
  std::optional<std::string> try_get(std::string_view key) override;
  std::int64_t add(std::string_view key, std::int64_t difference) override;
  void abort(const Error& why) override;

 private:
  std::unique_lock<std::mutex> lock();

  std::mutex mutex_;
  std::map<std::string, std::string, std::less<>> values_;
  FirstFailure failure_;
};

// An Error{Comm} with the same words, whatever kind of error ended the rendezvous.
Error abort_error(const Error& why);

}  // namespace lockstep::comm
