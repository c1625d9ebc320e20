#include "kernels/checks.h"
#include "kernels/checks/views.h"

namespace lockstep::kernels::checks {
namespace {

void require_scalars(const char* operation, const StepScalars& scalars) {
  require_vector(operation, "learning_rate", scalars.learning_rate, DType::float64, 1);
  require_vector(operation, "step", scalars.step, DType::int64, 1);
}

void require_inside(const char* operation, std::span<const PackItem> items,
                    const ConstTensorView& bucket) {
  for (const PackItem& item : items) {
    const std::size_t size = item.tensor.num_elements;
    require_dtype(operation, "a tensor", item.tensor.dtype, bucket.dtype);
    require(item.offset <= bucket.num_elements && size <= bucket.num_elements - item.offset,
            ErrorCode::Shape, operation, "{} elements at {} do not fit into a bucket of {}", size,
            item.offset, bucket.num_elements);
  }
}

}  // namespace

void sgd(std::span<const SgdParameter> parameters, const StepScalars& scalars,
         const SgdOptions& options) {
  require_scalars("sgd", scalars);
  for (const SgdParameter& p : parameters) {
    require_like("sgd", "grad", p.grad, p.weight);
    if (options.momentum != 0) require_like("sgd", "momentum", p.momentum, p.weight);
  }
}

void adamw(std::span<const AdamWParameter> parameters, const StepScalars& scalars) {
  require_scalars("adamw", scalars);
  for (const AdamWParameter& p : parameters) {
    require_like("adamw", "grad", p.grad, p.weight);
    require_like("adamw", "first_moment", p.first_moment, p.weight);
    require_like("adamw", "second_moment", p.second_moment, p.weight);
  }
}

void multi_clip(const ConstTensorView& norm) {
  require_vector("multi_clip", "norm", norm, DType::float64, 1);
}

void pack(std::span<const PackItem> items, const ConstTensorView& bucket) {
  require_inside("pack", items, bucket);
}

void unpack(const ConstTensorView& bucket, std::span<const PackItem> items) {
  require_inside("unpack", items, bucket);
}

}  // namespace lockstep::kernels::checks
