// The CPU backend: EigenBackend, whose kernels compute in float32 or float64, and float32 copies of
// bfloat16 operands around them. A call with such operands reads float32 copies; what it writes is
// rounded into its results once. That is slow, and the reference for a GPU's bfloat16 kernels.
#include <deque>
#include <type_traits>
#include <vector>

#include "engine/core/half.h"
#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/image_calls.h"
#include "kernels/norm_calls.h"
#include "kernels/sequence_calls.h"

namespace lockstep::kernels {
namespace {

// Kernels that take bfloat16 themselves: they move elements, or round but once themselves.
template <typename Call>
constexpr bool kTakesBfloat16 = false;
template <>
constexpr bool kTakesBfloat16<Copy> = true;
template <>
constexpr bool kTakesBfloat16<CopyMatrix> = true;
template <>
constexpr bool kTakesBfloat16<Fill> = true;
template <>
constexpr bool kTakesBfloat16<OrderedReduce> = true;
template <>
constexpr bool kTakesBfloat16<SoftmaxCrossEntropyForward> = true;
template <>
constexpr bool kTakesBfloat16<SoftmaxCrossEntropyBackward> = true;

template <typename View>
constexpr bool is_bfloat16(const View& view) {
  if constexpr (requires { view.dtype; }) {
    return view.dtype == DType::bfloat16;
  } else {
    return false;  // a list, whose kernels have their own types
  }
}

bool has_bfloat16(const auto& call) {
  return call.describe(
      [](const char*, const auto&... views) { return (is_bfloat16(views) || ...); });
}

MatrixView as_matrix(const TensorView& view) {
  return matrix_view(view.data, view.dtype, 1, view.num_elements);
}
ConstMatrixView as_matrix(const ConstTensorView& view) {
  return matrix_view(view.data, view.dtype, 1, view.num_elements);
}
template <typename Void>
BasicMatrixView<Void> as_matrix(const BasicMatrixView<Void>& view) {
  return view;
}

template <typename To, typename From>
void convert_rows(Stream& stream, const ConstMatrixView& from, const MatrixView& to) {
  const auto place = [&](std::size_t i, const auto& view) {
    return i / from.rows * view.batch_stride + i % from.rows * view.leading_dimension;
  };
  const auto convert = [](const From* in, To* out, std::size_t count) {
    LOCKSTEP_INDEPENDENT
    for (std::size_t j = 0; j < count; ++j) out[j] = static_cast<To>(number(in[j]));
  };
  if (from.batch * from.rows == 1) {  // a tensor
    return parallel_elements(stream, from.cols, [&](std::size_t begin, std::size_t end) {
      convert(data_of<From>(from) + begin, data_of<To>(to) + begin, end - begin);
    });
  }
  parallel_rows(stream, from.batch * from.rows, from.cols, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      convert(data_of<From>(from) + place(i, from), data_of<To>(to) + place(i, to), from.cols);
    }
  });
}

// The float32 copies of a call's bfloat16 operands.
class Float32Copies {
 public:
  explicit Float32Copies(Stream& stream) : stream_(stream) {}

  // Puts a copy in the place of a bfloat16 view. A result is copied too, as it may be added to.
  template <typename View>
  void widen(View& view) {
    if constexpr (requires { view.dtype; }) {
      if (!is_bfloat16(view)) return;
      const auto original = as_matrix(view);
      std::vector<float>& memory = memories_.emplace_back(original.num_elements());
      MatrixView copy = matrix_view(memory.data(), DType::float32, original.rows, original.cols);
      copy.batch = original.batch;
      convert_rows<float, Bfloat16>(stream_, original, copy);
      view.data = copy.data;
      view.dtype = DType::float32;
      if constexpr (requires { view.leading_dimension; }) {
        view.leading_dimension = copy.leading_dimension;
        view.batch_stride = copy.batch_stride;
      }
      if constexpr (std::is_same_v<decltype(original), const MatrixView>) {
        results_.push_back({original, copy});
      }
    }
  }

  // Puts a copy in the place of a float32 vector, each element rounded.
  void round(ConstTensorView& view) {
    std::vector<float>& memory = memories_.emplace_back();
    for (std::size_t i = 0; view.data && i < view.num_elements; ++i) {
      memory.push_back(static_cast<float>(Bfloat16(data_of<float>(view)[i])));
    }
    if (view.data) view.data = memory.data();
  }

  void round_results() {
    for (const Result& result : results_) {
      convert_rows<Bfloat16, float>(stream_, result.copy, result.original);
    }
  }

 private:
  struct Result {
    MatrixView original, copy;
  };

  Stream& stream_;
  std::deque<std::vector<float>> memories_;
  std::vector<Result> results_;
};

// Calls kernel(wide) with a call in which float32 copies stand for bfloat16 operands.
template <typename Call, typename Kernel>
void run_in_float32(Stream& stream, const Call& call, const Kernel& kernel) {
  Float32Copies copies(stream);
  Call wide = call;
  wide.describe([&](const char*, const auto&... views) {
    // They are members of `wide`, which is not const.
    (copies.widen(const_cast<std::remove_cvref_t<decltype(views)>&>(views)), ...);
  });
  if constexpr (requires { wide.scratch; }) copies.widen(wide.scratch);
  // A layer with weights adds its bias in the type of its results, as cuBLASLt does.
  if constexpr (requires { wide.bias, wide.preactivation; }) {
    if (is_bfloat16(call.y)) copies.round(wide.bias);
  }
  kernel(wide);
  copies.round_results();
}

class CpuBackend final : public Backend {
 public:
  LOCKSTEP_KERNELS(LOCKSTEP_OVERRIDE)
  std::size_t conv_scratch(const Windows& windows) const override {
    return eigen_.conv_scratch(windows);
  }

 private:
  EigenBackend eigen_;
};

#define LOCKSTEP_CPU_KERNEL(method, Call)                                                 \
  void CpuBackend::method(Stream& stream, const Call& call) {                             \
    if (kTakesBfloat16<Call> || !has_bfloat16(call)) return eigen_.method(stream, call);  \
    run_in_float32(stream, call, [&](const Call& wide) { eigen_.method(stream, wide); }); \
  }
LOCKSTEP_KERNELS(LOCKSTEP_CPU_KERNEL)
#undef LOCKSTEP_CPU_KERNEL

}  // namespace

Backend& cpu_backend() {
  // Never destroyed: tensors in static variables may be used until the very end.
  static CpuBackend& instance = *new CpuBackend;
  return instance;
}

}  // namespace lockstep::kernels
