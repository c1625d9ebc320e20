// The communicator that uses NCCL's collectives, for ranks that each have a GPU. Read
// comm/communicator.h first; this header lists the differences.
//
// Meeting: every rank writes its GPU's UUID and its version of NCCL into the store and reads those
//          of all ranks, so that two ranks on one GPU are named. NCCL itself would hang, or fail
//          without naming them.
// Calls:   a call is put on a stream of the GPU, as the CUDA part of communicator.h says; the ranks
//          do not meet on the host. So NCCL cannot check that the ranks' calls match: ranks that
//          differ in operation, size, dtype, op or root hang until their time limit, or get wrong
//          values if NCCL's steps happen to fit.
// Failure: a thread of each rank polls the time limits of the calls under way, and NCCL's own
//          errors (ncclCommGetAsyncError). On an error the rank aborts NCCL (ncclCommAbort), which
//          ends the kernels that hang on the GPU. The values of the call are worthless, so the
//          host's next wait for this device throws the error, and so does every later call. The
//          error names the rank's own last call, but not the rank that is missing: compare the
//          errors of the ranks. abort() breaks the group of its own rank; the others find out by
//          NCCL's errors, or by their time limits. In a captured graph only NCCL's errors reveal a
//          failed call, no time limit does.
// Messages: send and recv are Error{Usage}; --comm own carries messages.
// Results: bit-identical from run to run for equal topologies; min and max may lose a NaN.
// Plans:   NCCL chooses its algorithms; an all_reduce that names one is Error{Usage}.
// Threads: ranks that are threads of one process need CUDA_MODULE_LOADING=EAGER in its environment
//          before its first call into CUDA: a kernel that is loaded at its first launch may wait
//          for NCCL's, and NCCL's for it. Without it, Error{State}.
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
  // Several processes may use one GPU: NCCL is told that each is a separate host (NCCL_HOSTID).
  // This is for checking results, never for timing, because the processes take turns on the GPU.
  allow,
};

struct NcclGroupOptions {
  int rank = 0;
  int world_size = 1;
  std::shared_ptr<Store> store;
  // Distinguishes groups that use one store, including successive ones.
  std::string group = "0";
  Device device{DeviceType::cuda, 0};
  GpuSharing sharing = GpuSharing::refuse;
  double timeout_seconds = 30;  // to meet, and for the communicator's calls
};

// True if this build can use NCCL; if not, the reason says what to do.
bool has_nccl();
const std::string& no_nccl_reason();

// Meets the other ranks. Its description() is "nccl 2.28.9", or "nccl 2.28.9, ranks share a GPU:
// not for timing".
// Throws Error{Comm}    when this build has no NCCL, none is found at run time, or versions differ;
//        Error{Device}  when two ranks have the same GPU;
//        Error{Timeout} naming the ranks that did not come;
//        Error{Usage}   when rank and world size do not fit, or there is no store.
std::unique_ptr<Communicator> make_nccl_communicator(const NcclGroupOptions& options);

}  // namespace lockstep::comm
