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

}  // namespace

Library load(const std::string& path) {
  const runtime::SharedLibrary file(
      path, {.code = ErrorCode::Comm,
             .operation = "nccl",
             .advice = fmt::format("it is no NCCL, or one older than {}; install a newer one, or "
                                   "use --comm own",
                                   version_text(kOldestVersion))});
  require(file.is_loaded(), ErrorCode::Comm, "nccl",
          "no NCCL was found: {}; install libnccl2, or name the file of pip's nvidia-nccl package "
          "in LOCKSTEP_NCCL_LIBRARY, or use --comm own, which needs no NCCL",
          file.problem());
  Library found;
  file.find_required("ncclGetVersion", found.get_version);
  file.find_required("ncclGetUniqueId", found.get_unique_id);
  file.find_required("ncclCommInitRankConfig", found.comm_init_rank_config);
  file.find_required("ncclCommFinalize", found.comm_finalize);
  file.find_required("ncclCommDestroy", found.comm_destroy);
  file.find_required("ncclCommAbort", found.comm_abort);
  file.find_required("ncclCommGetAsyncError", found.comm_get_async_error);
  file.find_required("ncclGetErrorString", found.get_error_string);
  file.find_required("ncclGetLastError", found.get_last_error);
  file.find_required("ncclAllReduce", found.all_reduce);
  file.find_required("ncclBroadcast", found.broadcast);
  file.find_required("ncclAllGather", found.all_gather);
  file.find_required("ncclReduceScatter", found.reduce_scatter);
  file.find_required("ncclGroupStart", found.group_start);
  file.find_required("ncclGroupEnd", found.group_end);
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

void fail_call(const char* call, ncclResult_t result) {
  const char* last = library().get_last_error(nullptr);
  const std::string detail = last == nullptr || *last == '\0' ? "" : fmt::format(" ({})", last);
  std::string text = library().get_error_string(result) + detail;
  for (char& c : text) c = c == '\n' ? ' ' : c;
  fail(ErrorCode::Comm, call, "failed: {}", text);
}

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return ncclFloat64;
    case DType::float32:
      return ncclFloat32;
    case DType::bfloat16:
      return ncclBfloat16;
    case DType::float16:
      return ncclFloat16;
    case DType::int64:
      return ncclInt64;
    case DType::int32:
      return ncclInt32;
    case DType::uint8:
      return ncclUint8;
  }
  fail(ErrorCode::DType, "nccl", "unknown dtype");
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::average:
      return ncclAvg;
    case ReduceOp::product:
      return ncclProd;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::max:
      return ncclMax;
  }
  fail(ErrorCode::Usage, "nccl", "unknown op");
}

}  // namespace lockstep::comm::nccl
