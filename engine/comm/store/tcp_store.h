// A store in another process, over TCP: the server, which rank 0 has, and the client, which every
// rank has.
//
// The server's table is a MemoryStore; a thread for each connection answers its requests, each at
// once. A client is let in when its hello holds the job's token (hello.h); the answer is that to
// its hello. The sizes of its requests are checked before memory is taken for them, and can at
// worst cost this client its connection.
//
//   request                          answer
//     (hello)                          ok, or taken WHO, or left WHO: another process is this rank
//     set KEY VALUE                    ok
//     set_if_absent KEY VALUE          ok VALUE
//     try_get KEY                      ok VALUE, or ok
//     add KEY DIFFERENCE               ok SUM
//     abort ERROR                      ok
//     leave                            none: the server closes
// An error of the store is the answer `failed ERROR`.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "engine/comm/store/hello.h"
#include "engine/comm/store/store.h"

namespace lockstep::comm {

inline constexpr const char* kStorePurpose = "store";  // in the hello
inline constexpr std::size_t kMaxStoreMessageBytes = kMaxValueBytes + 2048;

// The server's answer to a request about the table; none to what is no such request.
std::optional<Message> answer_request(Store& table, const Message& request);

struct TcpStoreServerOptions {
  // The address to listen on: "127.0.0.1" (this host only), "::1", "0.0.0.0", "::" (every address,
  // of both families), one address of this host, or a name that has one.
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

  std::uint16_t port() const { return port_of(listener_); }

  // Waits until all connections have ended, or the time is over (false): the rank that serves
  // leaves last, so that no other one finds its store gone. A connection that has not said hello
  // counts too: it shall hear why the job was aborted.
  bool wait_until_unused(double seconds) const;

 private:
  struct Client {
    Socket socket;
    std::thread thread;
    std::atomic<bool> is_stranger{true};  // it has not said hello
    std::atomic<bool> has_ended{false};
  };
  // The process that is a rank, for good, also when it has left: a process that comes as the same
  // rank later belongs to another job.
  struct RankHolder {
    std::string process;
    bool is_connected = true;
  };

  void accept_all();
  void make_room();
  void serve(Client& client);
  Message answer_hello(const Hello& hello);
  void answer_requests(const Socket& socket, const Hello& hello);

  const std::size_t world_size_;
  const Hello expected_;
  MemoryStore table_;
  std::mutex ranks_mutex_;
  std::map<int, RankHolder> ranks_;
  std::list<Client> clients_;  // the acceptor's
  std::atomic<std::size_t> num_clients_{0};
  std::atomic<bool> is_stopping_{false};
  Socket listener_;
  std::thread acceptor_;
};

struct TcpStoreClientOptions {
  std::string host = "127.0.0.1";  // a name or an address, IPv4 or IPv6
  std::uint16_t port = 0;
  std::string token;            // the server's
  double timeout_seconds = 30;  // to connect
  double answer_seconds = 10;   // for an answer, which comes at once unless the server is stopped
  // This process comes as this rank, which no other process may be from now on; -1: as none. When
  // its connection ends without ~TcpStoreClient (its process was killed), the server aborts the
  // rendezvous with "rank 2 ended ...", so that the others do not wait for it in vain.
  int rank = -1;
};

// Calls of one client wait for each other. Once its connection is lost, every request throws what
// the first one threw.
class TcpStoreClient final : public Store {
 public:
  // Connects; tries again while nobody listens, since ranks start in any order, and while the rank
  // belonged to a process that has left, since its job is just ending.
  // Throws Error{Timeout} naming host and port when nobody listens in time, or what listens does
  // not answer. Error{Comm} when the server does not know this token, or is not a Lockstep store;
  // or on this rank alone when another process, which it names, is this rank already, or all ranks
  // have come: the job goes on undisturbed.
  explicit TcpStoreClient(const TcpStoreClientOptions& options);
  ~TcpStoreClient() override;

  void set(std::string_view key, std::string_view value) override;
  std::string set_if_absent(std::string_view key, std::string_view value) override;
  std::optional<std::string> try_get(std::string_view key) override;
  std::int64_t add(std::string_view key, std::int64_t difference) override;
  void abort(const Error& why) override;

  // The address of this host on the way to the server, under which others that reach the server can
  // reach this rank: "127.0.0.1", "10.0.0.7", "fe80::1%eth0".
  std::string local_address() const { return local_address_of(socket_); }
  // The address under which this rank reached the server.
  std::string server_address() const { return remote_address_of(socket_); }

 private:
  bool try_to_join(const TcpStoreClientOptions& options, runtime::Deadline deadline);
  // The answer behind its "ok".
  Message ask(const Message& request);

  const std::string server_;  // for errors
  const double answer_seconds_;
  std::mutex mutex_;
  Socket socket_;
  FirstFailure lost_;
};

}  // namespace lockstep::comm
