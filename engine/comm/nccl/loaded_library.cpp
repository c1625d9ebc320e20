// The NCCL of this process, loaded at run time. An emulated GPU (tests/emulated_gpu) has one that
// is linked in its place.
#include <cstdlib>

#include "engine/comm/nccl/nccl_library.h"

namespace lockstep::comm::nccl {

const Library& library() {
  static const Library loaded = [] {
    const char* path = std::getenv("LOCKSTEP_NCCL_LIBRARY");
    return load(path != nullptr && *path != '\0' ? path : "libnccl.so.2");
  }();
  return loaded;
}

}  // namespace lockstep::comm::nccl
