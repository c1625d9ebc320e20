// Messages on connections between processes of a job, at the store and between ranks, and the hello
// with which each connection begins.
//
// The process that connects says hello: the purpose of the connection, the job's token, and its
// rank. The listening end compares purpose and token before it reads anything else; it closes a
// connection with a wrong hello without a word. The token and all that follows travel in clear: it
// keeps jobs and users apart on networks whose other users cannot read or alter the traffic
// (docs/processes.md).
#pragma once

#include <atomic>
#include <list>
#include <optional>
#include <string>
#include <string_view>

#include "engine/comm/store/socket.h"

namespace lockstep::comm {

inline constexpr std::size_t kMinTokenBytes = 16;
inline constexpr std::size_t kMaxTokenBytes = 256;

// 64 hexadecimal digits that nobody can guess. Throws Error{Io} when the system has none.
std::string make_token();
// Throws Error{Usage} unless the token has kMinTokenBytes ... kMaxTokenBytes bytes; `what` is named
// in the error.
void require_token(std::string_view token, std::string_view what = "hello");

// Numbers and texts as the bytes of a message: i64, little-endian; u32 size and bytes.
class MessageWriter {
 public:
  MessageWriter& number(std::int64_t value);
  MessageWriter& text(std::string_view value);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Takes a message apart. Missing parts read as 0 or "", and is_valid() is false from then on.
class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : rest_(bytes) {}
  std::int64_t number();
  std::string_view text();
  bool is_valid() const { return is_valid_; }
  // All parts were there, and nothing is left.
  bool is_complete() const { return is_valid_ && rest_.empty(); }

 private:
  std::string_view take(std::size_t num_bytes);

  std::string_view rest_;
  bool is_valid_ = true;
};

// A message on a connection: u32 size, little-endian, and as many bytes.
IoResult send_message(const Socket& connection, std::string_view message,
                      runtime::Deadline deadline);
// A size above max_bytes counts as closed; no memory is taken for it.
IoResult receive_message(const Socket& connection, std::size_t max_bytes, std::string& message,
                         runtime::Deadline deadline);

struct Hello {
  std::string purpose;       // "store", "tcp/GROUP": other protocols and groups are strangers
  std::string token;         // the job's
  int rank = -1;             // the rank that connects; -1: none
  std::string process = {};  // its name, for errors of others that come as this rank
};

inline constexpr std::size_t kMaxHelloBytes = 2048;
std::string encode(const Hello& hello);
// The hello in these bytes, when its purpose and token are those of `expected`.
std::optional<Hello> decode_hello(std::string_view bytes, const Hello& expected);

// A connection without a valid hello is cut after this time,
inline constexpr std::chrono::seconds kHelloTime{5};
// and the oldest one earlier when more than so many wait, beside the expected ones.
inline constexpr std::size_t kMaxStrangers = 128;

// Accepts connections and reads their hellos, all of them at once, so that none waits for another.
// A connection that is cut is reset, by which its other end knows that it may try again; one whose
// hello is wrong is closed.
class HelloListener {
 public:
  struct Visitor {
    Socket socket;
    Hello hello;
  };

  // num_expected: how many may come at once and are no strangers. Throws Error{Usage} for a token
  // of a wrong size.
  HelloListener(Socket listener, Hello expected, std::size_t num_expected);

  // The next connection whose hello is valid; none at the deadline, and after stop().
  // Throws Error{Comm} when this process may not open more files.
  std::optional<Visitor> accept(runtime::Deadline deadline);
  // Any thread may call it: ends accept().
  void stop();

  std::uint16_t port() const { return port_of(listener_); }
  // Connections that have not said hello yet. Any thread may ask.
  std::size_t num_pending() const { return num_pending_; }

 private:
  struct Pending {
    Socket socket;
    runtime::Clock::time_point since;
    std::string input;
    bool has_news;
  };

  void accept_all();
  bool read_hello(Pending& pending, std::optional<Hello>& hello) const;
  void cut_strangers();

  Socket listener_;
  Hello expected_;
  std::size_t max_pending_;
  std::list<Pending> pending_;
  std::atomic<std::size_t> num_pending_{0};
  std::atomic<bool> is_stopped_{false};
};

}  // namespace lockstep::comm
