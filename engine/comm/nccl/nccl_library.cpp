#include "engine/comm/nccl/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "engine/core/error.h"

namespace lockstep::comm::nccl {
namespace {

constexpr int kOldestVersion = NCCL_VERSION(2, 18, 0);

std::string version_text(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

template <typename Function>
void look_up(void* handle, const std::string& path, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  require(function != nullptr, ErrorCode::Comm, "nccl",
          "{} has no {}: it is no NCCL, or one older than {}; install a newer one, or use --comm "
          "own",
          path, name, version_text(kOldestVersion));
}

}  // namespace

Library load(const std::string& path) {
  // Never closed: communicators may live until the process ends.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    fail(
        ErrorCode::Comm, "nccl",
        "no NCCL was found: {}; install libnccl2, or name the file of pip's nvidia-nccl package in "
        "LOCKSTEP_NCCL_LIBRARY, or use --comm own, which needs no NCCL",
        dlerror());
  }
  Library found;
  look_up(handle, path, "ncclGetVersion", found.get_version);
  look_up(handle, path, "ncclGetUniqueId", found.get_unique_id);
  look_up(handle, path, "ncclCommInitRankConfig", found.comm_init_rank_config);
  look_up(handle, path, "ncclCommFinalize", found.comm_finalize);
  look_up(handle, path, "ncclCommDestroy", found.comm_destroy);
  look_up(handle, path, "ncclCommAbort", found.comm_abort);
  look_up(handle, path, "ncclCommGetAsyncError", found.comm_get_async_error);
  look_up(handle, path, "ncclGetErrorString", found.get_error_string);
  look_up(handle, path, "ncclGetLastError", found.get_last_error);
  look_up(handle, path, "ncclAllReduce", found.all_reduce);
  look_up(handle, path, "ncclBroadcast", found.broadcast);
  look_up(handle, path, "ncclAllGather", found.all_gather);
  look_up(handle, path, "ncclReduceScatter", found.reduce_scatter);
  look_up(handle, path, "ncclSend", found.send);
  look_up(handle, path, "ncclRecv", found.recv);
  look_up(handle, path, "ncclGroupStart", found.group_start);
  look_up(handle, path, "ncclGroupEnd", found.group_end);
  int version = 0;
  check("ncclGetVersion", found.get_version(&version));
  require(version >= kOldestVersion, ErrorCode::Comm, "nccl",
          "needs NCCL {} or newer, found {}; update it, or use --comm own",
          version_text(kOldestVersion), version_text(version));
  return found;
}

std::string version_of(const Library& library) {
  int version = 0;
  check("ncclGetVersion", library.get_version(&version));
  return version_text(version);
}

void fail_call(const char* call, ncclResult_t result, ncclComm_t comm) {
  const char* last = library().get_last_error(comm);
  const std::string detail = last == nullptr || *last == '\0' ? "" : fmt::format(" ({})", last);
  std::string text = library().get_error_string(result) + detail;
  for (char& c : text) c = c == '\n' ? ' ' : c;
  fail(ErrorCode::Comm, call, "failed: {}", text);
}

}  // namespace lockstep::comm::nccl
