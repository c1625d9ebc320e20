// NCCL's functions over emulated GPUs: a collective is a task of each rank's stream, and the tasks
// meet (clique.h). Communicators are nonblocking. Only what engine/comm/nccl calls is here.
#include <nccl.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>

#include "tests/emulated_gpu/launch.h"
#include "tests/emulated_gpu/nccl/clique.h"

struct ncclComm {
  int rank = 0;
  int num_ranks = 0;
  int gpu = 0;
  // Streams may still be in the clique when the communicator is gone.
  std::shared_ptr<emulated_nccl::Clique> clique;
};

namespace emulated_nccl {
namespace {

std::mutex the_mutex;
std::map<int, ncclResult_t> the_async_errors;  // keyed by rank

std::map<int, std::size_t> the_refusals;  // each rank's calls until one is refused

// True if a test asked for the refusal of this call of the rank.
bool is_refused(int rank) {
  const std::lock_guard lock(the_mutex);
  const auto refusal = the_refusals.find(rank);
  if (refusal == the_refusals.end() || refusal->second-- > 0) return false;
  the_refusals.erase(refusal);
  return true;
}

ncclResult_t check_call(ncclComm_t comm) {
  int gpu = 0;
  cudaGetDevice(&gpu);
  if (comm == nullptr || gpu != comm->gpu || is_refused(comm->rank)) return ncclInvalidArgument;
  return comm->clique->is_complete() ? ncclSuccess : ncclInvalidUsage;
}

ncclResult_t enqueue(ncclComm_t comm, cudaStream_t stream, const Part& part) {
  const ncclResult_t checked = check_call(comm);
  if (checked != ncclSuccess) return checked;
  const auto meet = [part, clique = comm->clique] { clique->meet(part); };
  return emulated_gpu::launch_task(stream, meet) == cudaSuccess ? ncclSuccess
                                                                : ncclUnhandledCudaError;
}

}  // namespace

void set_async_error(int rank, ncclResult_t error) {
  const std::lock_guard lock(the_mutex);
  the_async_errors[rank] = error;
}

void refuse_call(int rank, std::size_t num_calls_before) {
  const std::lock_guard lock(the_mutex);
  the_refusals[rank] = num_calls_before;
}

}  // namespace emulated_nccl

using namespace emulated_nccl;

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

// The name of a folder: no other process has had this one's number at this time.
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<long> last{0};
  *id = {};
  std::snprintf(
      id->internal, sizeof id->internal, "lockstep-nccl-%d-%ld-%lld", getpid(), ++last,
      static_cast<long long>(std::chrono::system_clock::now().time_since_epoch().count()));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0 || rank < 0 || rank >= nranks) return ncclInvalidArgument;
  auto made = std::make_unique<ncclComm>();
  made->rank = rank;
  made->num_ranks = nranks;
  cudaGetDevice(&made->gpu);
  made->clique = std::make_shared<Clique>(id.internal, nranks, rank);
  *comm = made.release();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = ncclSuccess;
  const std::lock_guard lock(the_mutex);
  const auto error = the_async_errors.find(comm->rank);
  if (!comm->clique->is_complete()) *state = ncclInProgress;
  if (error != the_async_errors.end() && error->second != ncclSuccess) *state = error->second;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) {
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->clique->abort();
  delete comm;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "an error of the emulated NCCL";
}

const char* ncclGetLastError(ncclComm_t) {
  return "";
}

ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, stream, {Kind::all_reduce, input, output, count, type, op, 0});
}

ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, stream, {Kind::broadcast, input, output, count, type, ncclSum, root});
}

ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, stream, {Kind::all_gather, input, output, count, type, ncclSum, 0});
}

ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, stream, {Kind::reduce_scatter, input, output, count, type, op, 0});
}
