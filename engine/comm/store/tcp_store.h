// A store in another process, over TCP: the server in rank 0, and a client in every rank.
//
// The server's table is a MemoryStore; a thread for each connection answers its requests, each at
// once. A client is let in if its hello holds the job's token (hello.h). The sizes of its requests
// are checked before memory is taken for them; at worst a request costs the client its own
// connection.
//
// The answer to a hello is ok, or taken WHO, or left WHO: another process is this rank. The answer
// to a request of the table (store.h) is ok and what the table answers. There is none to `leave`:
// the server closes.
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

inline constexpr const char* kStorePurpose = "store";  // word of the hello
inline constexpr std::size_t kMaxStoreMessageBytes = kMaxValueBytes + 2048;

// The server's answer to a request about the table.
Message answer_request(Store& table, const Message& request);

struct TcpStoreServerOptions {
  // The address to listen on: "127.0.0.1" (this host only), "::1", "0.0.0.0", "::" (every address,
  // of both families), one address of this host, or a name that has one.
  std::string bind_address = "127.0.0.1";
  std::uint16_t port = 0;  // 0: a free one
  std::string token;       // 16 ... 256 bytes
  // How many ranks the job has. Once so many have come, every further one belongs to another job.
  // 0: unknown.
  std::size_t num_expected_clients = 0;
};

class TcpStoreServer {
 public:
  // Starts to listen and serve.
  // Throws Error{Comm} for a port in use, with what to do about it, and for an address that is not
  // this host's; Error{Usage} for a token of a wrong size.
  explicit TcpStoreServer(const TcpStoreServerOptions& options);
  // Closes all connections, so that pending requests of clients fail with Error{Comm}.
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  std::uint16_t port() const { return port_of(listener_); }

  // Waits until all connections have ended; returns false after that time. The rank that serves
  // leaves last, so that no other rank finds its store gone. A connection that has not said hello
  // counts too: it should hear why the job was aborted.
  bool wait_until_unused(double seconds) const;

 private:
  struct Client {
    Socket socket;
    std::thread thread;
    std::atomic<bool> has_ended{false};
  };
  // The process that holds a rank. It holds it forever, even after it has left: a process that
  // claims the same rank later belongs to another job.
  struct RankHolder {
    std::string process;
    bool is_connected = true;
  };

  void accept_all();
  void forget_ended();
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
  std::string token;  // the server's
  // To connect; and for an answer, for which ten seconds are always enough.
  double timeout_seconds = 30;
  // The rank that this process claims, which no other process may claim from now on; -1: none. If
  // its connection ends without ~TcpStoreClient (its process was killed), the server aborts the
  // rendezvous with "rank 2 ended ...", so that the others do not wait in vain.
  int rank = -1;
};

// Calls of one client wait for each other. Once its connection is lost, every request throws the
// error of the first.
class TcpStoreClient final : public Store {
 public:
  // Connects. It tries again while no process listens, because ranks start in any order, and while
  // the rank belonged to a process that has left, because that job is just ending.
  // Throws Error{Timeout} that names host and port if no process listens in time, or the listener
  // does not answer; Error{Comm} if the server does not know this token, or is not a Lockstep
  // store. On this rank alone it throws Error{Comm} if another process, which it names, has this
  // rank, or all ranks have come: the job goes on undisturbed.
  explicit TcpStoreClient(const TcpStoreClientOptions& options);
  ~TcpStoreClient() override;

  Message ask(const Message& request) override;

  // This host's address on the way to the server, at which others that reach the server can reach
  // this rank: "127.0.0.1", "10.0.0.7", "fe80::1%eth0".
  std::string local_address() const { return local_address_of(socket_); }
  // The address at which this rank reached the server.
  std::string server_address() const { return remote_address_of(socket_); }

 private:
  bool try_to_join(const TcpStoreClientOptions& options, runtime::Deadline deadline);

  const std::string server_;  // errors name it
  const double answer_seconds_;
  std::mutex mutex_;
  Socket socket_;
  FirstFailure lost_;
};

}  // namespace lockstep::comm
