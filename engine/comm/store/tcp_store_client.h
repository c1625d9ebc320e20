// A Store whose table is in a TcpStoreServer.
#pragma once

#include <memory>
#include <mutex>

#include "engine/comm/store/store.h"

namespace lockstep::comm {

struct TcpStoreClientOptions {
  std::string host = "127.0.0.1";  // a name or an address, IPv4 or IPv6
  std::uint16_t port = 0;
  std::string token;  // the server's
  // How long to try to connect, and how long a request that does not wait may take. The answer to
  // one that waits may come a quarter of this (0.5 to 5 s) after its own deadline.
  double timeout_seconds = 30;
  // Whose process the server is in, for errors: "rank 0". Empty: not known.
  std::string served_by;
  // Set: it comes as this rank, which nobody else may be from now on. When its connection ends
  // without ~TcpStoreClient (its process was killed), the server aborts the rendezvous with "rank 2
  // ended ...", so that nobody waits for it in vain.
  std::optional<int> rank;
  std::optional<double> connect_seconds = {};  // how long to try to connect, where that is less
};

// Once its connection is lost, every request throws what the first one threw.
class TcpStoreClient final : public Store {
 public:
  // Connects; tries again while nobody listens, since ranks start in any order.
  // Throws Error{Timeout} naming host and port when nobody listens in time. Error{Comm} when the
  // server does not know this token, or is not a Lockstep store; DuplicateRank, by whom, when somebody
  // is this rank already, or all ranks have come: the job goes on undisturbed.
  explicit TcpStoreClient(const TcpStoreClientOptions& options);
  ~TcpStoreClient() override;

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

  // The address of this host on the way to the server, under which others that reach the server can
  // reach this rank: "127.0.0.1", "10.0.0.7", "fe80::1%eth0".
  std::string local_address() const;
  // The address under which this rank reached the server.
  std::string server_address() const;

 private:
  class Connection;
  std::unique_ptr<Connection> connection_;
  std::mutex mutex_;
};

}  // namespace lockstep::comm
