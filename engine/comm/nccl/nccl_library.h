// NCCL's functions, loaded when they are first needed, so that programs start and do everything
// else on a machine without NCCL.
#pragma once

#include <nccl.h>

#include <string>

#include "engine/comm/communicator.h"

namespace lockstep::comm::nccl {

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0), "needs nccl.h of NCCL 2.18 or newer");

#define LOCKSTEP_NCCL_FUNCTIONS(DO) \
  DO(ncclGetVersion)                \
  DO(ncclGetUniqueId)               \
  DO(ncclCommInitRankConfig)        \
  DO(ncclCommFinalize)              \
  DO(ncclCommDestroy)               \
  DO(ncclCommAbort)                 \
  DO(ncclCommGetAsyncError)         \
  DO(ncclGetErrorString)            \
  DO(ncclGetLastError)              \
  DO(ncclAllReduce)                 \
  DO(ncclBroadcast)                 \
  DO(ncclAllGather)                 \
  DO(ncclReduceScatter)

struct Library {
#define LOCKSTEP_DECLARE(name) decltype(&::name) name = nullptr;
  LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE
};

// The library that this process uses. Throws as load() does.
const Library& library();

// Loads a shared library by name or path. Throws Error{Comm} if there is none, it is not NCCL, or
// it is older than 2.18; the error says how to get NCCL, and that --comm own works without it.
Library load(const std::string& path);

// "2.28.9".
std::string version_of(const Library& library);

// Throws Error{Comm}: "[ncclAllReduce] failed: ..." in NCCL's own words.
[[noreturn]] void fail_call(const char* call, ncclResult_t result);

}  // namespace lockstep::comm::nccl
