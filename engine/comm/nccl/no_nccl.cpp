// The functions of this folder in a build without NCCL.
#include "engine/comm/nccl/nccl_group.h"
#include "engine/core/error.h"

namespace lockstep::comm {

bool has_nccl() {
  return false;
}

const std::string& no_nccl_reason() {
  static const std::string reason =
      "this program was built without NCCL: install CUDA and NCCL's header (libnccl-dev of "
      "NVIDIA's "
      "repository, or pip's nvidia-nccl-cu12 or -cu13 with -DNCCL_ROOT=<its folder>) and build "
      "again, or use the engine's own communicator, which needs no NCCL";
  return reason;
}

std::unique_ptr<Communicator> make_nccl_communicator(const NcclGroupOptions&) {
  fail(ErrorCode::Comm, "nccl", "{}", no_nccl_reason());
}

}  // namespace lockstep::comm
