// The server of a store: one thread that answers any number of clients over TCP.
//
// A client must prove that it holds the job's token before anything else is read from it
// (token_handshake.h); a stranger gets no answer and is cut off after kHandshakeTime, or earlier
// where strangers come in crowds. Whoever has said a valid hello makes room for no stranger. A
// connection that is cut is reset, by which a client knows that it may try again; one whose hello
// is wrong is closed. What a client sends is checked against bounds before memory is taken for it,
// and can at worst cost that client its connection. The wire format is in store_protocol.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::comm {

// A connection that has not proved itself by then is closed.
inline constexpr std::chrono::seconds kHandshakeTime{5};
// Connections without a valid hello that may be open at a time, beside those of the clients that
// are expected; one more cuts the oldest of them. As many may wait with a valid hello for their
// proof.
inline constexpr std::size_t kMaxStrangers = 128;

struct TcpStoreServerOptions {
  // What to listen on: "127.0.0.1" (this host only), "::1", "0.0.0.0", "::" (every address, of both
  // families), one address of this host, or a name: all its addresses that are this host's.
  std::string bind_address = "127.0.0.1";
  std::uint16_t port = 0;  // 0: a free one
  std::string token;       // 16 ... 256 bytes
  // That may come at once: the ranks of the job. Once so many have come as a rank, whoever comes as
  // one is of another job. 0: not known.
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

  // Connections that have proved the token and are open now.
  std::size_t num_clients() const;

  // Waits until nobody is connected, or the deadline has passed (false): the rank that serves
  // leaves last, so that no other one finds its store gone. One that is just proving itself counts
  // too: it shall hear why the job was aborted.
  bool wait_until_unused(double seconds) const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep::comm
