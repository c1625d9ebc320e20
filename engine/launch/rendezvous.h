// Rendezvous, or joining a job: all ranks come to a store that rank 0 serves, and check that they
// belong together.
//
// Rank 0 listens at MASTER_ADDR:MASTER_PORT (rank_environment.h), on the loopback if all ranks are
// on one host; the others try to connect until it is there. Then each rank gives its number, its
// host, its world size and its settings, and all wait for each other. The links between ranks
// (comm/process_group.h) are set up over the store afterwards.
//
// The job's token is a secret of 16 to 256 bytes that the ranks of one job share. A process without
// it is refused, so that two users of one port never join each other's job. It is the value of
// LOCKSTEP_TOKEN, which `lockstep run` sets for the ranks of one machine.
// Ranks on several hosts must have one. On the loopback they may do without: then the user and the
// launcher's name for the job tell two jobs apart, and a user who means to could join.
#pragma once

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

// The value of LOCKSTEP_TOKEN; nullopt if it is not set.
// Throws Error{Usage} if the token is shorter than 16 bytes or longer than 256.
std::optional<std::string> find_token(const Environment& environment);

// A new token: 64 random hexadecimal digits. Throws Error{Io} if the system has no randomness.
std::string make_token();

// A setting that all ranks of a job must share: {"lr", "0.1"}.
struct Setting {
  std::string name;
  std::string value;
};

struct JoinOptions {
  double timeout_seconds = 30;  // until all ranks must have come
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

  // It is complete: the local world size has been counted if the environment lacked it.
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

// Waits for all ranks, then counts those of this host if the environment does not tell.
// Throws, on every rank with the same words, Error{Usage} if ranks have different world sizes or
// settings (it names the first difference, both values and both ranks); Error{Timeout} if ranks
// have not come in time, naming them; Error{Comm} if one failed, naming it, or the port is in use.
// Throws on this rank alone Error{Usage} if the environment is contradictory (rank_environment.h),
// a token is missing or of a wrong size, or its local rank is not below the number of ranks on its
// host. A rank whose number another process has, or that comes to a complete job, fails alone: the
// job goes on undisturbed.
Job join_job(const Environment& environment, const JoinOptions& options = {});

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
