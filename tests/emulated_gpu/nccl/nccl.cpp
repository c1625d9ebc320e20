// NCCL's functions over emulated GPUs: a collective is a task of each rank's stream, and the tasks
// meet (clique.h). Communicators are nonblocking. Only what engine/comm/nccl calls is here.
#include <nccl.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "tests/emulated_gpu/nccl/clique.h"

struct ncclComm {
  int rank = 0;
  int num_ranks = 0;
  int gpu = 0;
  std::shared_ptr<emulated_nccl::Clique> clique;
  // Streams may still be in the clique when the communicator is gone.
  std::shared_ptr<bool> is_aborted = std::make_shared<bool>(false);
};

namespace emulated_nccl {
namespace {

std::mutex the_mutex;
std::map<long, std::shared_ptr<Clique>> the_cliques;  // by id
std::map<int, ncclResult_t> the_async_errors;         // by rank

struct Task {
  Part part;
  int rank = 0;
  std::shared_ptr<Clique> clique;
  std::shared_ptr<bool> is_aborted;
};

ncclResult_t enqueue(ncclComm_t comm, cudaStream_t stream, const Part& part) {
  int gpu = 0;
  cudaGetDevice(&gpu);
  if (comm == nullptr || gpu != comm->gpu) return ncclInvalidArgument;
  if (!comm->clique->is_complete()) return ncclInvalidUsage;
  auto* task = new Task{part, comm->rank, comm->clique, comm->is_aborted};
  const auto run = [](void* data) {
    const std::unique_ptr<Task> mine(static_cast<Task*>(data));
    mine->clique->meet(mine->rank, mine->part, *mine->is_aborted);
  };
  if (cudaLaunchHostFunc(stream, run, task) == cudaSuccess) return ncclSuccess;
  delete task;
  return ncclUnhandledCudaError;
}

}  // namespace

void set_async_error(int rank, ncclResult_t error) {
  const std::lock_guard lock(the_mutex);
  the_async_errors[rank] = error;
}

}  // namespace emulated_nccl

using namespace emulated_nccl;

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<long> last{0};
  const long number = ++last;
  *id = {};
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0 || rank < 0 || rank >= nranks) return ncclInvalidArgument;
  long number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  auto made = std::make_unique<ncclComm>();
  made->rank = rank;
  made->num_ranks = nranks;
  cudaGetDevice(&made->gpu);
  const std::lock_guard lock(the_mutex);
  auto& clique = the_cliques[number];
  if (!clique) clique = std::make_shared<Clique>(nranks);
  clique->join();
  made->clique = clique;
  *comm = made.release();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(the_mutex);
  const auto error = the_async_errors.find(comm->rank);
  *state = comm->clique->is_complete() ? ncclSuccess : ncclInProgress;
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
  comm->clique->abort(*comm->is_aborted);
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

// A communicator of two whose rank 0 sends to rank 1 and nothing else: all that Link asks for.
ncclResult_t ncclSend(const void* input, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  if (comm->num_ranks != 2 || comm->rank != 0 || peer != 1) return ncclInvalidUsage;
  return enqueue(comm, stream, {Kind::message, input, nullptr, count, type, ncclSum, 0});
}

ncclResult_t ncclRecv(void* output, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (comm->num_ranks != 2 || comm->rank != 1 || peer != 0) return ncclInvalidUsage;
  return enqueue(comm, stream, {Kind::message, nullptr, output, count, type, ncclSum, 0});
}
