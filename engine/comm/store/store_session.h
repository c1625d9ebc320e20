// The server's side of one connection to a store, as a value: bytes go in, bytes come out, and no
// bytes whatever can do more than end it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/comm_errors.h"
#include "engine/comm/store/store_protocol.h"
#include "engine/comm/store/store_table.h"
#include "engine/comm/store/token_handshake.h"

namespace lockstep::comm {

// What all sessions of a server share.
struct StoreState {
  // Who is a rank: for good, also when it has left. A process that comes as the same rank later is
  // of another job.
  struct Seat {
    std::string process;  // "process 1234 on node7"
    bool is_connected = true;
  };

  std::string token;
  StoreTable table;
  FirstFailure failure;  // abort_error()
  std::map<int, Seat> ranks;
  std::size_t world_size = 0;  // once so many ranks have come, there is no other; 0: not known
};

class StoreSession {
 public:
  explicit StoreSession(StoreState& state);

  // Most bytes that receive() takes now; 0 while an answer is on its way or a request waits, so
  // that a client that asks without listening waits too.
  std::size_t num_bytes_wanted() const;
  void receive(std::span<const std::byte> bytes);
  // Looks again after a request that waits: another session may have changed the table.
  void look_again(runtime::Clock::time_point now);
  // The connection is gone.
  void connection_ended();

  // What is to be sent to the client.
  std::span<const std::byte> output() const;
  void was_sent(std::size_t num_bytes);

  // It holds the token, or has recorded a hello of somebody who does.
  bool has_said_hello() const { return stage_ != Stage::hello; }
  bool is_proven() const { return stage_ == Stage::open; }
  // Whether the connection is to be closed, once the output was sent.
  bool is_over() const { return is_over_; }
  // Of the request that waits.
  runtime::Deadline deadline() const;

 private:
  enum class Stage { hello, proof, open };
  struct Waiting {
    std::vector<std::string> keys;
    std::size_t num_found = 0;  // the keys before this one are there
    StoreRequest request = StoreRequest::wait;
    runtime::Deadline deadline;
  };

  void receive_hello();
  void receive_proof();
  void receive_requests();
  // The answer; none where it comes later.
  std::optional<std::vector<std::byte>> answer(StoreRequest request, StoreReader& reader);
  std::optional<std::vector<std::byte>> answer_one_key(StoreRequest request, StoreReader& reader);
  std::optional<std::vector<std::byte>> start_waiting(StoreRequest request, StoreReader& reader);
  std::optional<std::vector<std::byte>> register_rank(int rank, const std::string& process);
  void refuse(int rank, const std::string& process);
  void send(std::span<const std::byte> bytes);

  StoreState& state_;
  ServerHandshake handshake_;
  Stage stage_ = Stage::hello;
  std::vector<std::byte> input_, output_;
  std::size_t num_sent_ = 0;  // of the output
  std::optional<Waiting> waiting_;
  std::optional<int> rank_;
  bool is_over_ = false;
};

}  // namespace lockstep::comm
