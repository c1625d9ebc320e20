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
// Keys and values are bytes; no value is larger than kMaxValueBytes. Every operation is a request,
// a list of texts, so that it can travel to another process:
//
//   request                          answer
//     set KEY VALUE
//     try_get KEY                      VALUE, or nothing
//     add KEY DIFFERENCE               SUM
//     abort ERROR
//
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
#include <vector>

#include "engine/comm/comm_errors.h"
#include "engine/core/error.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

inline constexpr std::size_t kMaxValueBytes = 1024 * 1024;

using Message = std::vector<std::string>;

class Store {
 public:
  virtual ~Store() = default;

  // Carries out a request and returns its answer. Error{Usage} if it is not one of the list above.
  virtual Message ask(const Message& request) = 0;

  // Writes a key, whether or not it exists.
  void set(std::string_view key, std::string_view value);
  // The key's value, if it is there now.
  std::optional<std::string> try_get(std::string_view key);
  // Adds to a number (0 if there is none) and returns the sum. The value reads as decimal text.
  // Error{Usage} if the key holds something else.
  std::int64_t add(std::string_view key, std::int64_t difference);
  // Ends the rendezvous: every pending and later call of every rank throws an Error{Comm} with the
  // same words. Only the first abort counts.
  void abort(const Error& why);

  // Waits until the key exists, and returns its value; empty at the deadline. It asks again and
  // again, at most ten milliseconds apart.
  std::optional<std::string> find(std::string_view key, runtime::Deadline deadline);
  // Like find(), but throws Error{Timeout} at the deadline.
  std::string get(std::string_view key, runtime::Deadline deadline);
  // Returns when all ranks 0 ... world_size - 1 have called it with this name, which no other
  // barrier has. Error{Timeout}, tagged with the name, names the ranks that have not come.
  void barrier(std::string_view name, int rank, int world_size, double timeout_seconds);
};

class MemoryStore final : public Store {
 public:
  Message ask(const Message& request) override;

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
  FirstFailure failure_;
};

// Comm, for a rank whose connection ended, as `how` says: "rank 2 is lost: its connection closed:
// it was killed, or its host was cut off".
Error ended_rank(std::string_view operation, int rank, std::string_view how);

}  // namespace lockstep::comm
