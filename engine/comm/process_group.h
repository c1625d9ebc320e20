// Communicators whose ranks are processes, on one host or on several.
//
// How they meet, through a store that all of them reach (store/store.h):
//   1. every rank publishes its host, and waits for all others;
//   2. ranks of one host open each other's shared memory; if one of them cannot, all use TCP;
//   3. ranks of different hosts connect over TCP.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/comm/communicator.h"
#include "engine/comm/link.h"
#include "engine/comm/store/store.h"

namespace lockstep::comm {

enum class TransportChoice {
  automatic,  // shared memory within a host where the system allows it, TCP between hosts
  shm,        // shared memory, or an error
  tcp,        // TCP between all ranks
};

// "auto", "shm" or "tcp". Throws Error{Usage} for another name.
TransportChoice parse_transport_choice(std::string_view name);

struct ProcessGroupOptions {
  int rank = 0;
  int world_size = 1;
  std::shared_ptr<Store> store;  // rank 0 of 1 needs none
  std::string token;             // the job's; admits TCP connections
  // Distinguishes groups that use one store, including successive ones.
  std::string group = "0";
  // The address at which others reach this host (TcpStoreClient::local_address).
  std::string address = "127.0.0.1";
  // The host that this rank claims to be on; empty: host_identity(). Tests use it to have several
  // hosts.
  std::string host;
  TransportChoice transport = TransportChoice::automatic;
  // A modelled link (link.h): between hosts if there are several, else between every two ranks. All
  // ranks run on one machine, and give the same.
  std::optional<LinkSpec> link;
  // own: no other rank runs on this rank's cores, so it may spin while it waits.
  enum class Cores { shared, own } cores = Cores::shared;
  double timeout_seconds = 30;  // to meet, and for the communicator's calls
  plan::AllReducePlan default_plan = plan::AllReducePlan::automatic;
};

// Meets the other ranks. Its description() says how they talk: "own: auto over shm", "... over
// tcp", "... over shm+tcp", "... over shm behind a simulated link (50us,1GB/s)".
// Throws on every rank alike
//   Error{Timeout}  naming the ranks that did not come;
//   Error{Comm}     when shared memory was asked for and the ranks are on several hosts or may not
//                   share it.
// Throws Error{Usage} on this rank alone when rank and world size do not fit.
// REQUIRES: all ranks have the same world size, transport and link, and each has a rank of its own
//           (launch/rendezvous.h checks that).
std::unique_ptr<Communicator> make_process_group(const ProcessGroupOptions& options);

}  // namespace lockstep::comm
