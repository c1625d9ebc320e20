// The communicator whose collectives are NCCL's, for ranks that each have a GPU. Read
// comm/communicator.h first; here is what differs.
//
// How ranks meet: every rank shows a card in the store (its GPU's UUID, its version of NCCL); rank
// 0 reads all of them, and answers with NCCL's id or with the reason why this group cannot be. Two
// ranks on one GPU are so found before NCCL is called, which would hang or fail without naming
// them.
//
// How a call runs: it is put on a stream of the GPU, as the CUDA part of communicator.h says, and
// nobody meets on the host. NCCL therefore cannot check that ranks call the same: ranks that differ
// in operation, size, dtype, op or root hang, or get wrong values where NCCL's steps happen to fit.
// When a call is not done in time, the ranks compare through the store what each called last, and
// the error of all ranks names who is silent and who called something else.
//
// Failure: a thread of each rank watches the calls that are under way: their time limit, NCCL's own
//          errors (ncclCommGetAsyncError), and the store, where a rank that fails or leaves says
//          so. Then all ranks abort NCCL (ncclCommAbort), which ends what hangs on the GPU; the
//          values of the call are worthless, so the next wait of the host for this device throws
//          the error, and so does every later call. A failed call in a captured graph is found by
//          NCCL's errors, not by a time limit.
// Several: a list of tensors is one NCCL group (ncclGroupStart, ncclGroupEnd): all of it is
//          enqueued or, when NCCL refuses one of its calls, nothing. Errors name the call in which
//          the ranks' lists first differ; a time limit that is over, the last call of the list.
// Messages: send and recv use a communicator of two ranks for each direction, made at the first
//          message, so that ranks which all send first do not block each other. Sizes and dtypes
//          that differ are not found.
// Results: bit-identical from run to run for equal topologies; min and max need not keep a NaN.
// Plans:   NCCL chooses its algorithms; an all_reduce that names one is Error{Usage}.
// Needs:   NCCL 2.18 or newer, loaded when the first communicator is made: the file that
//          LOCKSTEP_NCCL_LIBRARY names, or libnccl.so.2 where the loader finds it.
#pragma once

#include <memory>
#include <string>

#include "engine/comm/communicator.h"
#include "engine/comm/store/store.h"

namespace lockstep::comm {

enum class GpuSharing {
  refuse,
  // Several processes may use one GPU: NCCL is told that each is a host of its own (NCCL_HOSTID).
  // To check results, never for timing: the processes take turns on the GPU.
  allow,
};

struct NcclGroupOptions {
  int rank = 0;
  int world_size = 1;
  std::shared_ptr<Store> store;
  // Tells groups that use one store apart, also one after the other.
  std::string group = "0";
  Device device{DeviceType::cuda, 0};
  GpuSharing sharing = GpuSharing::refuse;
  double timeout_seconds = 30;  // to meet, and of the communicator
};

// Whether this build can use NCCL, and if not, why and what to do.
bool has_nccl();
const std::string& no_nccl_reason();

// Meets the other ranks. Its description() is "nccl 2.28.9", or "nccl 2.28.9, ranks share a GPU:
// not for timing".
// Throws Error{Comm}    when this build has no NCCL, none is found at run time, versions or world
//                       sizes differ;
//        Error{Device}  when two ranks have the same GPU;
//        Error{Timeout} naming the ranks that did not come;
//        Error{Usage}   when rank and world size do not fit, or there is no store.
// All but the first and the last are the same on every rank. DuplicateRank, when another process has
// this rank (comm_errors.h), is for this one alone.
std::unique_ptr<Communicator> make_nccl_communicator(const NcclGroupOptions& options);

}  // namespace lockstep::comm
