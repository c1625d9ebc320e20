// What a store's client and server say to each other, after the token handshake. The client asks,
// the server answers each request once, in order. Numbers are little-endian.
//
//   request   u32 size of the rest, u32 StoreRequest, then by request:
//               set, set_if_absent   text key, text value      -> ok, text value (of set_if_absent)
//               get                  i64 milliseconds, text key -> ok, text value
//               try_get              text key                  -> ok, text value | absent
//               add                  text key, i64 difference  -> ok, i64 sum
//               wait                 i64 milliseconds, u32 number of keys, text keys -> ok
//               erase                text key                  -> ok | absent
//               num_keys                                       -> ok, i64
//               abort                text error                -> ok
//               register_rank        i64 rank, text process    -> ok | taken; the server closes
//               leave                                          -> ok; then the client closes
//               clock                                          -> ok, i64 nanoseconds
//   answer    u32 size of the rest, u32 StoreStatus, then as above, or
//               timeout              text key that was not there
//               refused              text: the message of an Error{Usage}
//               aborted              text: error (error_bytes.h)
//               taken                i64 1 when its holder has left, else 0; text: by whom
//   text      u32 number of bytes, bytes
//   milliseconds < 0: no deadline
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/store/store.h"

namespace lockstep::comm {

enum class StoreRequest : std::uint32_t {
  set,
  set_if_absent,
  get,
  try_get,
  add,
  wait,
  erase,
  num_keys,
  abort,
  register_rank,
  leave,
  clock,
};

enum class StoreStatus : std::uint32_t { ok, absent, timeout, refused, aborted, taken };

inline constexpr const char* kStorePurpose = "store";  // of the token handshake
inline constexpr std::size_t kStoreHeaderBytes = 8;
// A longer message costs its sender the connection.
inline constexpr std::size_t kMaxStoreMessageBytes =
    kMaxValueBytes + kMaxKeysPerWait * (kMaxKeyBytes + 4) + 1024;

// Puts a request or an answer together.
class StoreWriter {
 public:
  explicit StoreWriter(StoreRequest request) : StoreWriter(static_cast<std::uint32_t>(request)) {}
  explicit StoreWriter(StoreStatus status) : StoreWriter(static_cast<std::uint32_t>(status)) {}

  StoreWriter& number(std::int64_t value);
  StoreWriter& count(std::size_t value);  // < 2^32
  StoreWriter& text(std::string_view value);
  // The message with its size filled in.
  std::vector<std::byte> finish();

 private:
  explicit StoreWriter(std::uint32_t kind);
  void append(const void* data, std::size_t num_bytes);

  std::vector<std::byte> message_;
};

// Takes a message apart. What is missing reads as 0 or "", and is_valid() is false from then on.
class StoreReader {
 public:
  explicit StoreReader(std::span<const std::byte> rest) : rest_(rest) {}

  std::int64_t number();
  std::size_t count();
  std::string text();
  // Whether everything read so far was there.
  bool is_valid() const { return is_valid_; }
  // Whether, beside that, nothing is left.
  bool is_complete() const { return is_valid_ && rest_.empty(); }

 private:
  bool read(void* value, std::size_t num_bytes);

  std::span<const std::byte> rest_;
  bool is_valid_ = true;
};

struct StoreHeader {
  std::uint32_t num_bytes = 0;  // behind the header
  std::uint32_t kind = 0;
};
// REQUIRES: kStoreHeaderBytes bytes.
StoreHeader read_store_header(std::span<const std::byte> bytes);

}  // namespace lockstep::comm
