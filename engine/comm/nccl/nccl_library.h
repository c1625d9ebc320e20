// NCCL's functions, loaded when they are first needed, so that a program starts and does everything
// else on a machine without NCCL.
#pragma once

#include <nccl.h>

#include <string>

#include "engine/comm/communicator.h"

namespace lockstep::comm::nccl {

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0), "needs nccl.h of NCCL 2.18 or newer");

struct Library {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
};

// The library that this process uses. Throws as load() does.
const Library& library();

// Loads a shared library by name or path. Throws Error{Comm} when there is none, it is not NCCL, or
// it is older than 2.18; the error says how to get NCCL, and that --comm own works without it.
Library load(const std::string& path);

// "2.28.9".
std::string version_of(const Library& library);

// Throws Error{Comm}: "[ncclAllReduce] failed: ..." in NCCL's own words.
[[noreturn]] void fail_call(const char* call, ncclResult_t result);

inline void check(const char* call, ncclResult_t result) {
  if (result != ncclSuccess) [[unlikely]] {
    fail_call(call, result);
  }
}

// NCCL's names for our dtypes and ops. ncclAvg multiplies every contribution by 1/n as it enters,
// as ours does.
ncclDataType_t nccl_type(DType dtype);
ncclRedOp_t nccl_op(ReduceOp op);

}  // namespace lockstep::comm::nccl
