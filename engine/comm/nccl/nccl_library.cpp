#include "engine/comm/nccl/nccl_library.h"

#include <fmt/format.h>

#include "engine/core/error.h"
#include "engine/runtime/shared_library.h"

namespace lockstep::comm::nccl {
namespace {

constexpr int kOldestVersion = NCCL_VERSION(2, 18, 0);

std::string version_text(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

int version_code_of(const Library& library) {
  int version = 0;
  const ncclResult_t result = library.ncclGetVersion(&version);
  if (result != ncclSuccess) fail_call("ncclGetVersion", result);
  return version;
}

}  // namespace

Library load(const std::string& path) {
  const runtime::SharedLibrary file(path);
  require(file.is_loaded(), ErrorCode::Comm, "nccl",
          "no NCCL was found: {}; install libnccl2, or name the file of pip's nvidia-nccl package "
          "in LOCKSTEP_NCCL_LIBRARY, or use the engine's own communicator, which needs no NCCL",
          file.problem());
  Library found;
  const auto find = [&]<typename Function>(const char* name, Function*& function) {
    function = file.find<Function>(name);
    require(function != nullptr, ErrorCode::Comm, "nccl",
            "{} has no {}: it is not NCCL, or is older than {}; install a newer one, or use the "
            "engine's own communicator",
            path, name, version_text(kOldestVersion));
  };
#define LOCKSTEP_FIND(name) find(#name, found.name);
  LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_FIND)
#undef LOCKSTEP_FIND
  const int version = version_code_of(found);
  require(version >= kOldestVersion, ErrorCode::Comm, "nccl",
          "needs NCCL {} or newer, found {}; update it, or use the engine's own communicator",
          version_text(kOldestVersion), version_text(version));
  return found;
}

std::string version_of(const Library& library) {
  return version_text(version_code_of(library));
}

void fail_call(const char* call, ncclResult_t result) {
  const char* last = library().ncclGetLastError(nullptr);
  const std::string detail = last == nullptr || *last == '\0' ? "" : fmt::format(" ({})", last);
  std::string text = library().ncclGetErrorString(result) + detail;
  for (char& c : text) c = c == '\n' ? ' ' : c;
  fail(ErrorCode::Comm, call, "failed: {}", text);
}

}  // namespace lockstep::comm::nccl
