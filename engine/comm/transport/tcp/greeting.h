// The first bytes on a connection between two ranks, as a state machine without sockets: the token
// handshake, then a greeting from each end that says which rank it is.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/store/token_handshake.h"

namespace lockstep::comm {

// What both ends must agree on, and who speaks.
struct Identity {
  std::string token;
  std::string group;
  int rank = 0;
  int world_size = 1;
};

class Greeting {
 public:
  enum class Side { connects, accepts };
  Greeting(Identity mine, Side side);

  // The bytes to be received next; 0 when it is over.
  std::size_t num_bytes_wanted() const;
  // REQUIRES: as many as were wanted.
  void receive(std::span<const std::byte> bytes);
  // What is to be sent now; taken once.
  std::vector<std::byte> take_output() { return std::exchange(output_, {}); }

  // Where this end accepts: the other one has said a valid hello.
  bool has_heard_hello() const { return step_ != Step::hello; }
  // The other end is no rank of this group.
  bool has_failed() const { return step_ == Step::failed; }
  // The other end's rank, once it is known.
  std::optional<int> peer() const { return peer_; }

 private:
  enum class Step { hello, answer, proof_and_greeting, greeting, done, failed };

  std::vector<std::byte> greeting() const;
  void read_greeting(std::span<const std::byte> bytes);
  void send(std::span<const std::byte> bytes);

  Identity mine_;
  Step step_;
  std::optional<ClientHandshake> client_;
  std::optional<ServerHandshake> server_;
  std::vector<std::byte> output_;
  std::optional<int> peer_;
};

}  // namespace lockstep::comm
