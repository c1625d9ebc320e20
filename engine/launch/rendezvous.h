// Joining a job: all ranks come to a store that rank 0 serves, and check that they belong together.
//
// Rank 0 listens at MASTER_ADDR:MASTER_PORT (rank_environment.h), on the loopback if all ranks are
// on one host; the others try to connect until it is there. Then each rank gives its number, its
// host, its world size and its settings, and all wait for each other (check_ranks). The links
// between ranks (comm/process_group.h) are set up over the store afterwards.
//
// The job's token is a secret of 16 to 256 bytes that the ranks of one job share. A process without
// it is refused, so that two users of one port never join each other's job. It comes from
//   LOCKSTEP_TOKEN        `lockstep run` makes one for the ranks of one machine
//   LOCKSTEP_TOKEN_FILE   a file of the user that holds it (mode 600)
// Ranks on several hosts must have one. On the loopback they may do without: then any user of this
// machine could join, and only the launcher's name for a job distinguishes it from another one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/store/store.h"
#include "engine/core/files.h"
#include "engine/launch/rank_environment.h"

namespace lockstep::comm {
class TcpStoreServer;
}

namespace lockstep::launch {

// The token that the two variables give; nullopt if neither is set.
// Throws Error{Usage} that names the variable if the token is shorter than 16 bytes or longer than
// 256; Error{Io} if there is no such file, or other users may read it.
std::optional<std::string> find_token(const Environment& environment);

// A new token: 64 random hexadecimal digits.
std::string make_token();

// A callback for long waits.
struct WaitingNotice {
  // Called in the waiting thread, first after after_seconds, then whenever the set of missing ranks
  // changes. missing: their numbers in rising order, at least one.
  std::function<void(const std::vector<int>& missing)> tell;
  double after_seconds = 2;
};

// A setting that all ranks of a job must share: {"lr", "0.1"}.
struct Setting {
  std::string name;
  std::string value;
};

struct JoinOptions {
  double timeout_seconds = 30;  // for all ranks to come
  WaitingNotice waiting = {};   // on every rank that waits for others
  std::vector<Setting> settings = {};
};

// A rank's membership. Keep it as long as the store is used, because rank 0's holds the server.
class Job {
 public:
  // Rank 0 leaves last: it waits up to two seconds until the other ranks have left the store, or
  // half a second if an error ends it.
  ~Job();
  Job(Job&&) noexcept;
  Job& operator=(Job&&) = delete;

  // It is complete: local world size and node rank have been counted if the environment lacked
  // them.
  const RankEnvironment& rank() const { return rank_; }
  // Rank 0 of 1 has a store of its own in memory.
  const std::shared_ptr<comm::Store>& store() const { return store_; }
  const std::string& token() const { return token_; }
  // This host's address as rank 0's host sees it, at which others can reach this host.
  const std::string& address() const { return address_; }

 private:
  friend Job join_job(const Environment& environment, const JoinOptions& options);
  Job();

  RankEnvironment rank_;
  std::string token_;
  std::string address_ = "127.0.0.1";
  std::unique_ptr<comm::TcpStoreServer> server_;
  std::shared_ptr<comm::Store> store_;  // leaves before its server closes
};

// Throws Error{Usage} if the environment is contradictory (rank_environment.h) or a token is
// missing or of a wrong size, and the errors of check_ranks; Error{Timeout} on every waiting rank
// if ranks are missing, naming them; Error{Comm} on every rank if one failed, naming it, and if the
// port is in use. A rank whose number another process has, or that comes to a complete job, fails
// alone: the job goes on undisturbed.
Job join_job(const Environment& environment, const JoinOptions& options = {});

// Registers this rank in the job's store and waits for all others, then counts what the environment
// lacked: local world size, and node rank (nodes are numbered by their lowest rank).
// Every rank calls it once per store. An error ends the rendezvous for all ranks, with the same
// words: Error{Usage} if ranks have different world sizes or settings (it names the first
// difference, both values and both ranks); Error{Timeout} if ranks have not come in time, naming
// them. Throws Error{Usage} on a rank whose local rank is not below the number of ranks on its
// host.
void check_ranks(comm::Store& store, RankEnvironment& rank, const JoinOptions& options);

// Holds a port without listening: no other program gets it as a free port, while a rank can still
// listen there.
class PortReservation {
 public:
  // The addresses that the port is for: this host's loopback or all of its addresses.
  enum class Scope { loopback, everywhere };

  // port 0: a free one.
  // Throws Error{Comm} that names the port and --standalone if a program listens there.
  PortReservation(int port, Scope scope);

  int port() const { return port_; }

 private:
  FileDescriptor socket_;
  int port_ = 0;
};

}  // namespace lockstep::launch
