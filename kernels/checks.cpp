#include "kernels/checks.h"

#include "engine/core/error.h"
#include "engine/core/views.h"

namespace lockstep::kernels::checks {

// Each of these requires one thing of one view, and names the operation and the view in its error.
namespace {

void require_size(const char* operation, const char* name, std::size_t found,
                  std::size_t expected) {
  require(found == expected, ErrorCode::Shape, operation, "{} has size {}, expected {}", name,
          found, expected);
}

void require_dtype(const char* operation, const char* name, DType found, DType expected) {
  require(found == expected, ErrorCode::DType, operation, "{} is {}, expected {}", name,
          to_string(found), to_string(expected));
}

// A vector of num_elements elements of dtype.
void require_vector(const char* operation, const char* name, const ConstTensorView& view,
                    DType dtype, std::size_t num_elements) {
  require_dtype(operation, name, view.dtype, dtype);
  require_size(operation, name, view.num_elements, num_elements);
}

// As large as another, and of its dtype.
void require_like(const char* operation, const char* name, const ConstTensorView& view,
                  const ConstTensorView& other) {
  require_vector(operation, name, view, other.dtype, other.num_elements);
}

// As require_vector, or no data at all.
void require_optional_vector(const char* operation, const char* name, const ConstTensorView& view,
                             DType dtype, std::size_t num_elements) {
  if (view.data) require_vector(operation, name, view, dtype, num_elements);
}

// One matrix of rows x cols.
void require_matrix(const char* operation, const char* name, const ConstMatrixView& view,
                    DType dtype, std::size_t rows, std::size_t cols) {
  require_dtype(operation, name, view.dtype, dtype);
  require(view.batch == 1 && view.rows == rows && view.cols == cols, ErrorCode::Shape, operation,
          "{} is [{}, {}, {}], expected [1, {}, {}] (batch, rows, columns)", name, view.batch,
          view.rows, view.cols, rows, cols);
}

// As require_matrix, or no data at all.
void require_optional_matrix(const char* operation, const char* name, const ConstMatrixView& view,
                             DType dtype, std::size_t rows, std::size_t cols) {
  if (view.data) require_matrix(operation, name, view, dtype, rows, cols);
}

}  // namespace

void fail_dtype(DeviceType device, const char* operation, DType dtype) {
  fail(ErrorCode::DType, operation,
       "the {} backend has no kernel for {}; convert to float32 or float64",
       device == DeviceType::cpu ? "CPU" : "CUDA", to_string(dtype));
}

void copy(const ConstTensorView& from, const ConstTensorView& to) {
  require_like("copy", "to", to, from);
}

void copy_matrix(const ConstMatrixView& from, const ConstMatrixView& to) {
  require_dtype("copy_matrix", "to", to.dtype, from.dtype);
  require(from.batch == to.batch && from.rows == to.rows && from.cols == to.cols, ErrorCode::Shape,
          "copy_matrix", "cannot copy [{}, {}, {}] to [{}, {}, {}]", from.batch, from.rows,
          from.cols, to.batch, to.rows, to.cols);
}

void convert(const ConstTensorView& from, const ConstTensorView& to) {
  require_size("convert", "to", to.num_elements, from.num_elements);
}

void gather_rows(const ConstMatrixView& source, const ConstTensorView& indices,
                 const ConstMatrixView& to, const LabelsOfRows& labels) {
  require_vector("gather_rows", "indices", indices, DType::int64, to.rows);
  require_size("gather_rows", "a row of the source", source.cols, to.cols);
  if (labels.from.data == nullptr) return;
  require(to.cols > 0, ErrorCode::Shape, "gather_rows", "labels need rows that have columns");
  require_vector("gather_rows", "the source's labels", labels.from, DType::int64, source.rows);
  require_vector("gather_rows", "labels", labels.to, DType::int64, to.rows);
}

void add(const ConstTensorView& a, const ConstTensorView& b, const ConstTensorView& y) {
  require_like("add", "b", b, a);
  require_like("add", "y", y, a);
}

void multiply(const ConstTensorView& a, const ConstTensorView& b, const ConstTensorView& y) {
  require_like("multiply", "b", b, a);
  require_like("multiply", "y", y, a);
}

void scale(const ConstTensorView& x, const ConstTensorView& y) {
  require_like("scale", "y", y, x);
}

void axpy(const ConstTensorView& x, const ConstTensorView& y) {
  require_like("axpy", "y", y, x);
}

void ordered_sum(std::span<const ConstTensorView> sources, double factor,
                 const ConstTensorView& y) {
  require(!sources.empty(), ErrorCode::Shape, "ordered_sum", "needs at least one source");
  for (const ConstTensorView& source : sources) require_like("ordered_sum", "a source", source, y);
  require(is_floating_point(y.dtype) || factor == 1, ErrorCode::DType, "ordered_sum",
          "{} can be summed with factor 1 only, found {}", to_string(y.dtype), factor);
}

void activation_forward(const ConstTensorView& x, const ConstTensorView& y) {
  require_like("activation", "y", y, x);
}

void activation_backward(const ConstTensorView& saved, const ConstTensorView& grad_y,
                         const ConstTensorView& grad_x) {
  require_like("activation backward", "grad_y", grad_y, saved);
  require_like("activation backward", "grad_x", grad_x, saved);
}

void dropout(const DropoutMask& mask, const ConstMatrixView& x, const ConstMatrixView& y) {
  require_matrix("dropout", "y", y, x.dtype, x.rows, x.cols);
  require(mask.probability >= 0 && mask.probability <= 1, ErrorCode::Usage, "dropout",
          "the probability must be in [0, 1], found {}", mask.probability);
  if (mask.step_on_device.data != nullptr) {
    require_vector("dropout", "step_on_device", mask.step_on_device, DType::int64, 1);
  }
  // A draw is numbered by 32 bits and serves four columns.
  require(x.cols <= std::size_t{1} << 34, ErrorCode::Shape, "dropout",
          "takes up to 2^34 columns, found {}", x.cols);
}

void sum(const ConstTensorView& x, const ConstTensorView& y) {
  require_vector("sum", "y", y, x.dtype, 1);
}

void argmax_rows(const ConstMatrixView& x, const ConstTensorView& y) {
  require_vector("argmax_rows", "y", y, DType::int64, x.rows);
  require(x.cols > 0 || x.rows == 0, ErrorCode::Shape, "argmax_rows",
          "a row without columns has no largest element");
}

void norm(const ConstTensorView& y) {
  require_size("norm", "y", y.num_elements, 1);
}

void matmul(const ConstMatrixView& a, Transpose transpose_a, const ConstMatrixView& b,
            Transpose transpose_b, const ConstMatrixView& c) {
  const auto* name = "matmul";
  const bool a_turned = transpose_a == Transpose::yes;
  const bool b_turned = transpose_b == Transpose::yes;
  require_dtype(name, "b", b.dtype, a.dtype);
  require_dtype(name, "c", c.dtype, a.dtype);
  require_size(name, "the inner dimension of b", b_turned ? b.cols : b.rows,
               a_turned ? a.rows : a.cols);
  require_size(name, "the rows of c", c.rows, a_turned ? a.cols : a.rows);
  require_size(name, "the columns of c", c.cols, b_turned ? b.rows : b.cols);
  require((a.batch == 1 || a.batch == c.batch) && (b.batch == 1 || b.batch == c.batch),
          ErrorCode::Shape, name, "batch sizes {} and {} do not give {}", a.batch, b.batch,
          c.batch);
}

void linear_forward(const ConstMatrixView& x, const ConstMatrixView& weight,
                    const ConstTensorView& bias, const ConstMatrixView& y,
                    const ConstMatrixView& preactivation) {
  const auto* name = "linear";
  require_matrix(name, "weight", weight, x.dtype, weight.rows, x.cols);
  require_matrix(name, "y", y, x.dtype, x.rows, weight.rows);
  require_optional_vector(name, "bias", bias, x.dtype, weight.rows);
  require_optional_matrix(name, "preactivation", preactivation, x.dtype, x.rows, weight.rows);
}

void linear_backward(const ConstMatrixView& x, const ConstMatrixView& weight,
                     const ConstMatrixView& grad_z, const ConstMatrixView& grad_x,
                     const ConstMatrixView& grad_weight, const ConstTensorView& grad_bias) {
  const auto* name = "linear backward";
  require_matrix(name, "weight", weight, x.dtype, weight.rows, x.cols);
  require_matrix(name, "grad_z", grad_z, x.dtype, x.rows, weight.rows);
  require_optional_matrix(name, "grad_x", grad_x, x.dtype, x.rows, x.cols);
  require_optional_matrix(name, "grad_weight", grad_weight, x.dtype, weight.rows, x.cols);
  require_optional_vector(name, "grad_bias", grad_bias, x.dtype, weight.rows);
}

namespace {

// What stands in both calls: a matrix of the size of x, and one number per feature.
template <typename Call>
void require_features(const char* name, const Call& call, const char* matrix_name,
                      const ConstMatrixView& matrix) {
  const DType dtype = call.x.dtype;
  require_matrix(name, matrix_name, matrix, dtype, call.x.rows, call.x.cols);
  require_vector(name, "mean", call.mean, dtype, call.x.cols);
  require_vector(name, "inverse_std", call.inverse_std, dtype, call.x.cols);
  require_optional_vector(name, "weight", call.weight, dtype, call.x.cols);
}

}  // namespace

void batch_norm_forward(const BatchNormForward& call) {
  const auto* name = "batch_norm";
  const DType dtype = call.x.dtype;
  const std::size_t features = call.x.cols;
  require_features(name, call, "y", call.y);
  require_optional_vector(name, "bias", call.bias, dtype, features);
  require_optional_vector(name, "running_mean", call.running_mean, dtype, features);
  require_optional_vector(name, "running_var", call.running_var, dtype, features);
  require(call.statistics == BatchNormForward::Statistics::batch ||
              (call.running_mean.data && call.running_var.data),
          ErrorCode::Shape, name, "evaluation needs the running mean and variance");
}

void batch_norm_backward(const BatchNormBackward& call) {
  const auto* name = "batch_norm backward";
  const DType dtype = call.x.dtype;
  const std::size_t features = call.x.cols;
  require_features(name, call, "grad_y", call.grad_y);
  require_optional_vector(name, "grad_weight", call.grad_weight, dtype, features);
  require_optional_vector(name, "grad_bias", call.grad_bias, dtype, features);
  require_optional_matrix(name, "grad_x", call.grad_x, dtype, call.x.rows, features);
}

void softmax_cross_entropy_forward(const ConstMatrixView& logits, const ConstTensorView& labels,
                                   const ConstMatrixView& probabilities,
                                   const ConstTensorView& loss) {
  const auto* name = "cross_entropy";
  require_vector(name, "labels", labels, DType::int64, logits.rows);
  require_matrix(name, "probabilities", probabilities, logits.dtype, logits.rows, logits.cols);
  require_vector(name, "loss", loss, logits.dtype, 1);
}

void softmax_cross_entropy_backward(const ConstMatrixView& probabilities,
                                    const ConstTensorView& labels, const ConstTensorView& grad_loss,
                                    const ConstMatrixView& grad_logits) {
  const auto* name = "cross_entropy backward";
  const DType dtype = probabilities.dtype;
  require_vector(name, "labels", labels, DType::int64, probabilities.rows);
  require_vector(name, "grad_loss", grad_loss, dtype, 1);
  require_matrix(name, "grad_logits", grad_logits, dtype, probabilities.rows, probabilities.cols);
}

void mse_forward(const ConstTensorView& x, const ConstTensorView& target,
                 const ConstTensorView& loss) {
  require_like("mse", "target", target, x);
  require_vector("mse", "loss", loss, x.dtype, 1);
}

void mse_backward(const ConstTensorView& x, const ConstTensorView& target,
                  const ConstTensorView& grad_loss, const ConstTensorView& grad_x) {
  require_like("mse backward", "target", target, x);
  require_vector("mse backward", "grad_loss", grad_loss, x.dtype, 1);
  require_like("mse backward", "grad_x", grad_x, x);
}

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
