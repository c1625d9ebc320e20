// The NCCL of a build for the emulated GPU: this folder, linked into the program.
#include "engine/comm/nccl/nccl_library.h"

namespace lockstep::comm::nccl {

const Library& library() {
  static const Library linked{ncclGetVersion,        ncclGetUniqueId,    ncclCommInitRankConfig,
                              ncclCommFinalize,      ncclCommDestroy,    ncclCommAbort,
                              ncclCommGetAsyncError, ncclGetErrorString, ncclGetLastError,
                              ncclAllReduce,         ncclBroadcast,      ncclAllGather,
                              ncclReduceScatter,     ncclGroupStart,     ncclGroupEnd};
  return linked;
}

}  // namespace lockstep::comm::nccl
