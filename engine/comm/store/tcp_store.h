// A store in another process, over TCP: the server, which rank 0 or the launcher has, and the
// client, which every rank has.
//
// The server's table is a MemoryStore; a thread for each client calls it. A client is let in when
// its hello holds the job's token (hello.h). Its requests are checked against bounds before memory
// is taken for them, and can at worst cost this client its connection.
//
//   request   i64 StoreRequest, then                      answer   i64 StoreStatus, then
//     set             text key, text value                  ok
//     set_if_absent   text key, text value                  ok, text value
//     find            text key, i64 milliseconds (< 0:      ok, i64 1, text value; or ok, i64 0
//                     no deadline)
//     add             text key, i64 difference              ok, i64 sum
//     erase           text key                              ok
//     clock                                                 ok, i64 nanoseconds
//     abort           text error                            ok
//     take_rank       i64 rank, text process                ok; or taken, i64 1 when its holder has
//                                                           left, else 0, text who has it
//     leave                                                 none: the server closes
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "engine/comm/store/hello.h"
#include "engine/comm/store/store.h"

namespace lockstep::comm {

enum class StoreRequest { set, set_if_absent, find, add, erase, clock, abort, take_rank, leave };
enum class StoreStatus { ok, failed, taken };

inline constexpr const char* kStorePurpose = "store";  // in the hello
inline constexpr std::size_t kMaxStoreMessageBytes = kMaxValueBytes + kMaxKeyBytes + 1024;

// The server's answer to a request about the table, set to abort, for its threads and for fuzzers;
// none to bytes that are no such request, and when the client of a find() is gone.
std::optional<std::string> answer_request(Store& table, std::string_view request,
                                          const std::function<bool()>& is_client_gone);

struct TcpStoreServerOptions {
  // The address to listen on: "127.0.0.1" (this host only), "::1", "0.0.0.0", "::" (every address,
  // of both families), one address of this host, or a name: all its addresses that are this host's.
  std::string bind_address = "127.0.0.1";
  std::uint16_t port = 0;  // 0: a free one
  std::string token;       // 16 ... 256 bytes
  // How many ranks the job has. Once so many have come, every further one belongs to another job.
  // 0: not known.
  std::size_t num_expected_clients = 0;
};

class TcpStoreServer {
 public:
  // Listens and serves from here on.
  // Throws Error{Comm}: a port in use is named, with what to do about it; an address that is not
  // this host's. Error{Usage}: a token of a wrong size.
  explicit TcpStoreServer(const TcpStoreServerOptions& options);
  // Closes all connections: pending requests of clients fail with Error{Comm}.
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  std::uint16_t port() const;

  // Waits until all connections have ended, or the time is over (false): the rank that serves
  // leaves last, so that no other one finds its store gone. A connection that has not said hello
  // counts too: it shall hear why the job was aborted.
  bool wait_until_unused(double seconds) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

struct TcpStoreClientOptions {
  std::string host = "127.0.0.1";  // a name or an address, IPv4 or IPv6
  std::uint16_t port = 0;
  std::string token;  // the server's
  // How long to try to connect, and how long a request that does not wait may take. The answer to
  // one that waits may come a quarter of this (0.5 to 5 s) after its own deadline.
  double timeout_seconds = 30;
  // Whose process the server is in, for errors: "rank 0". Empty: not known.
  std::string served_by;
  // Set: the client comes as this rank, which no other process may be from now on. When its
  // connection ends without ~TcpStoreClient (its process was killed), the server aborts the
  // rendezvous with "rank 2 ended ...", so that the others do not wait for it in vain.
  std::optional<int> rank;
  std::optional<double> connect_seconds = {};  // how long to try to connect, where that is less
};

// Once its connection is lost, every request throws what the first one threw.
class TcpStoreClient final : public Store {
 public:
  // Connects; tries again while nobody listens, since ranks start in any order.
  // Throws Error{Timeout} naming host and port when nobody listens in time. Error{Comm} when the
  // server does not know this token, or is not a Lockstep store; DuplicateRank, by whom, when
  // another process is this rank already, or all ranks have come: the job goes on undisturbed.
  explicit TcpStoreClient(const TcpStoreClientOptions& options);
  ~TcpStoreClient() override;

  void set(std::string_view key, std::string_view value) override;
  std::string set_if_absent(std::string_view key, std::string_view value) override;
  std::optional<std::string> find(std::string_view key, runtime::Deadline deadline) override;
  std::int64_t add(std::string_view key, std::int64_t difference) override;
  void erase(std::string_view key) override;
  std::int64_t clock_ns() override;
  void abort(const Error& why) override;

  // The address of this host on the way to the server, under which others that reach the server can
  // reach this rank: "127.0.0.1", "10.0.0.7", "fe80::1%eth0".
  std::string local_address() const { return local_address_of(socket_); }
  // The address under which this rank reached the server.
  std::string server_address() const { return remote_address_of(socket_); }

 private:
  // The answer behind its status. deadline: of a request that waits for a key.
  std::string ask(const MessageWriter& request, std::optional<runtime::Deadline> deadline = {});
  void require_done(IoResult result);

  std::string server_;  // for errors
  double timeout_seconds_;
  std::mutex mutex_;
  Socket socket_;
  FirstFailure lost_;
};

}  // namespace lockstep::comm
