// What is said of a rank that others need and do not get: that it is missing, late, gone or dead.
// All of these sentences stand here, so that every transport and library uses the same ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/comm/collective_call.h"
#include "engine/core/error.h"

namespace lockstep::comm {

// A rank that waits for another one in a call. Each method is the error of a wait that ended so; it
// is one of the call's operation.
struct RankWait {
  int rank = 0;
  int peer = 0;
  CallHeader call;
  double timeout_seconds = 0;

  // Timeout: "rank 0 waited 2 s in all_reduce #7 of 100 float32 (sum)" and then
  //   ": rank 2 is missing (...)"          missing: who has not called it (describe_missing)
  //   " for rank 1, which has called it too but does not go on"          missing: ""
  //   " for a message that rank 1 has not sent"                          of a recv
  Error late(std::string_view missing) const;
  //   " for rank 1 on another host, which does not answer"
  Error late_on_another_host() const;
  //   " for a message of rank 1 that is still on its way over the modelled link (50us,1GB/s)"
  Error late_over(std::string_view link) const;

  // Comm: "rank 1 left the group while rank 0 waits for it in ...".
  Error left() const;
  // Comm: "rank 1 (process 4711) died while rank 0 waits for it in ...".
  Error died(int process) const;
  // Comm: "rank 0 expected 8 bytes from rank 1, found 4".
  Error found_bytes(std::size_t expected, std::size_t found) const;
};

// "rank 2 is missing (its last call: barrier #6)".
std::string missing_rank(int rank, const CallHeader& last_call);

// Comm: "rank 1 left the group after 3 collectives, and all_reduce #3 ... needs it".
Error left_before(const CallHeader& call, int rank, std::uint64_t num_collectives);

// Comm, of whoever sees its connection end: "rank 2 is lost: its connection closed: ..." between
// ranks, and "rank 2 ended without leaving: ..." at the store. garbled: "... it sent bytes that are
// no frames".
Error lost_rank(int rank);
Error garbled_rank(int rank);
Error ended_rank(int rank);

// "all_reduce #7 of 100 float32 (sum) was not done within 2 s".
std::string not_done(const CallHeader& call, double timeout_seconds);
// Timeout, of who waits less long than the call itself does: the same, and that it goes on.
Error not_done_yet(const CallHeader& call, double timeout_seconds);

// Comm: "[abort] rank 3 aborted the group: ...".
Error aborted_by(int rank, std::string_view why);
// Is this such an error, so that its cause is another rank's?
bool is_abort(const std::exception& error);

// Adds to "rank 1 is missing, rank 2 is missing".
void add_to_list(std::string& list, std::string_view item);

// "rank 1, rank 3": those of 0 ... world_size - 1 that are_meant.
template <typename AreMeant>
std::string list_ranks(int world_size, const AreMeant& are_meant) {
  std::string list;
  for (int rank = 0; rank < world_size; ++rank) {
    if (are_meant(rank)) add_to_list(list, "rank " + std::to_string(rank));
  }
  return list;
}

}  // namespace lockstep::comm
