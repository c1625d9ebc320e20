// Loads this process's NCCL at run time. An emulated GPU (tests/emulated_gpu) links another one in
// its place.
#include "engine/comm/nccl/nccl_library.h"
#include "engine/runtime/shared_library.h"

namespace lockstep::comm::nccl {

const Library& library() {
  static const Library loaded =
      load(runtime::library_path("LOCKSTEP_NCCL_LIBRARY", "libnccl.so.2"));
  return loaded;
}

}  // namespace lockstep::comm::nccl
