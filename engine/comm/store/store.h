// Store: what the ranks of a job know of each other before they are connected: a table of keys and
// bytes that one process serves to all (the rendezvous). Read this header first.
//
// A rank writes its own address under its own key and reads those of the others. Whoever waits for
// a key ends in one of three ways: the key is there; the deadline passed; or the job was aborted.
//
//   TcpStoreServer   serves the table, in a thread of the first rank or of the launcher
//   TcpStoreClient   a Store whose table is in such a server
//   MemoryStore      a Store for ranks that are threads of one process
//
// Keys and values are bytes. Limits: kMaxKeyBytes, kMaxValueBytes, kMaxKeys; Error{Usage} beyond.
// Errors:  Error{Timeout} names the key waited for. Error{Comm} when the server is gone or the job
//          was aborted; it says why.
// Threads: any thread may call a Store; calls of one Store wait for each other. A thread that waits
//          long for a key while others write needs a Store (a connection) of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/core/error.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {

inline constexpr std::size_t kMaxKeyBytes = 512;
inline constexpr std::size_t kMaxValueBytes = 1024 * 1024;
inline constexpr std::size_t kMaxKeys = 65536;
inline constexpr std::size_t kMaxKeysPerWait = 1024;

// Where a server notes the first process that it refused as a rank, and why (comm_errors.h).
inline constexpr const char* kRefusedKey = "store/refused";

class Store {
 public:
  virtual ~Store() = default;

  // Writes a key, whether or not it exists.
  virtual void set(std::string_view key, std::string_view value) = 0;
  // Writes a key that does not exist; returns the value that the key has now. So the first of
  // several writers wins and all of them learn who won.
  virtual std::string set_if_absent(std::string_view key, std::string_view value) = 0;
  // Waits until the key exists, and returns its value. Error{Timeout} at the deadline.
  virtual std::string get(std::string_view key, runtime::Deadline deadline) = 0;
  // Does not wait.
  virtual std::optional<std::string> try_get(std::string_view key) = 0;
  // Adds to a number (0 where there is none) and returns the sum. The value reads as decimal text.
  // Error{Usage} when the key holds something else.
  virtual std::int64_t add(std::string_view key, std::int64_t difference) = 0;
  // Waits until all keys exist. Error{Timeout} at the deadline names the first that does not.
  virtual void wait(std::span<const std::string> keys, runtime::Deadline deadline) = 0;
  // Says whether there was such a key.
  virtual bool erase(std::string_view key) = 0;
  virtual std::size_t num_keys() = 0;
  // trace::now_ns() of the process that holds the table: of rank 0 in a job.
  virtual std::int64_t clock_ns() = 0;

  // Ends the rendezvous: every pending and later call of every rank throws abort_error(why). The
  // first abort stays.
  virtual void abort(const Error& why) = 0;

  // Returns when all ranks of 0 ... world_size - 1 have called it with this name; a name may be
  // used again, after a barrier that succeeded. Error{Timeout} names the ranks that have not come.
  // Cost: five requests of each rank.
  void barrier(std::string_view name, int rank, int world_size, runtime::Deadline deadline);
};

// The same words as Error{Comm}, whatever went wrong for the rank that ends the rendezvous.
Error abort_error(const Error& why);

}  // namespace lockstep::comm
