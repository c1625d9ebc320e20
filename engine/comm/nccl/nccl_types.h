// NCCL's names for our dtypes and ops.
#pragma once

#include <nccl.h>

#include "engine/comm/communicator.h"
#include "engine/core/error.h"

namespace lockstep::comm::nccl {

inline ncclDataType_t nccl_type(DType dtype) {
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

// ncclAvg multiplies every contribution by 1/n as it enters, as ours does.
inline ncclRedOp_t nccl_op(ReduceOp op) {
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
