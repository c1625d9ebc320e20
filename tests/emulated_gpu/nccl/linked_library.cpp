// The NCCL of a build for the emulated GPU: this folder, linked into the program.
#include "engine/comm/nccl/nccl_library.h"

namespace lockstep::comm::nccl {

const Library& library() {
#define LOCKSTEP_LINK(name) &::name,
  static const Library linked{LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_LINK)};
#undef LOCKSTEP_LINK
  return linked;
}

}  // namespace lockstep::comm::nccl
