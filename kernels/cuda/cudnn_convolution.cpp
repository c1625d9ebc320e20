#include "kernels/cuda/cudnn_convolution.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>

#include "engine/core/error.h"
#include "engine/core/log.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/storage.h"
#include "kernels/cuda/cudnn_library.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/product.h"
#include "kernels/matmul_precision.h"

namespace lockstep::kernels::cuda {
namespace {

using runtime::Storage;
using runtime::cuda::cuda_stream;
using runtime::cuda::CudaStream;

// The library's state for a stream, in which it belongs to one thread at a time. It is made at the
// stream's first convolution and kept, like all that a stream keeps for its kernels (launch.cpp).
// Null if the library does not start here: for a GPU that is too old for it, say.
class Handle {
 public:
  explicit Handle(Stream& stream)
      : current_(cuda_stream(stream).gpu()), kept_(kept_by(stream)), lock_(kept_.mutex) {
    const CudaStream& cuda = cuda_stream(stream);
    if (kept_.handle == nullptr) {
      require(!cuda.is_capturing(), ErrorCode::State, "conv2d",
              "the stream's first convolution cannot be captured; run the step once before "
              "capturing it");
      const cudnnStatus_t status = cudnn().cudnnCreate(&kept_.handle);
      if (status != CUDNN_STATUS_SUCCESS) {
        kept_.handle = nullptr;
        give_up_cudnn(fmt::format("cuDNN {} does not start: {}", cudnn_choice().version,
                                  cudnn().cudnnGetErrorString(status)));
        return;
      }
    }
    if (kept_.stream != cuda.handle()) CUDNN(cudnnSetStream, kept_.handle, cuda.handle());
    kept_.stream = cuda.handle();
  }
  operator cudnnHandle_t() const { return kept_.handle; }

 private:
  struct Kept {
    std::mutex mutex;
    cudnnHandle_t handle = nullptr;
    cudaStream_t stream = nullptr;
  };
  static Kept& kept_by(const Stream& stream) {
    static auto& mutex = *new std::mutex;
    static auto& all = *new std::map<const Stream*, Kept>;
    const std::lock_guard lock(mutex);
    return all[&stream];
  }

  runtime::cuda::CurrentGpu current_;
  Kept& kept_;
  std::lock_guard<std::mutex> lock_;
};

// Owns one of the library's descriptors: Tensor is a cudnnTensorDescriptor_t.
#define LOCKSTEP_DESCRIPTOR(Name)                                 \
  struct Name {                                                   \
    cudnn##Name##Descriptor_t object = nullptr;                   \
    Name() { CUDNN(cudnnCreate##Name##Descriptor, &object); }     \
    ~Name() { cudnn().cudnnDestroy##Name##Descriptor(object); }   \
    Name(const Name&) = delete;                                   \
    Name& operator=(const Name&) = delete;                        \
    operator cudnn##Name##Descriptor_t() const { return object; } \
  };
LOCKSTEP_DESCRIPTOR(Tensor)
LOCKSTEP_DESCRIPTOR(Filter)
LOCKSTEP_DESCRIPTOR(Convolution)
#undef LOCKSTEP_DESCRIPTOR

// --- what is convolved, and by which algorithm

struct Problem {
  Windows windows;
  std::size_t features = 0;
  DType dtype{};  // of the images
  cudnnMathType_t math{};

  auto operator<=>(const Problem&) const = default;
  std::string text() const {
    const Windows& w = windows;
    return fmt::format("[{}, {}, {}, {}] * [{}, {}, {}], stride {}, padding {}, {}", w.images,
                       w.height, w.width, w.channels, features, w.kernel_height, w.kernel_width,
                       w.stride, w.padding, to_string(dtype));
  }
};

bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

// Returns nothing for calls that go by patches: all without a usable cuDNN, those without elements,
// of float64, or of images that the library's descriptors or algorithms do not take.
std::optional<Problem> problem_of(const Windows& w, const ConstTensorView& x,
                                  const ConstMatrixView& y) {
  if (!cudnn_choice().problem.empty()) return std::nullopt;
  const bool is_wide = x.dtype == DType::float32;
  if (is_wide ? takes_bfloat16() : x.dtype != DType::bfloat16) return std::nullopt;
  const std::size_t largest = std::max({x.num_elements, y.num_elements(), y.cols * w.cols()});
  if (x.num_elements == 0 || y.num_elements() == 0 || w.cols() == 0) return std::nullopt;
  if (largest > std::size_t{std::numeric_limits<int>::max()}) return std::nullopt;
  if (y.leading_dimension != y.cols || !is_aligned(x.data) || !is_aligned(y.data)) {
    return std::nullopt;
  }
  const bool is_exact = is_wide && matmul_precision() == MatmulPrecision::highest;
  return Problem{w, y.cols, x.dtype,
                 is_exact  ? CUDNN_FMA_MATH
                 : is_wide ? CUDNN_DEFAULT_MATH  // TF32
                           : CUDNN_TENSOR_OP_MATH};
}

// A problem in the library's terms, with the algorithm of one pass.
struct Plan {
  Tensor x, y;
  Filter weight;
  Convolution convolution;
  std::optional<int> algorithm;  // of the pass's enumeration; nothing if the library has none
  std::size_t workspace_bytes = 0;
  std::atomic<bool> is_refused{false};  // by the library, when it was to run

  void describe(const Problem& problem) {
    const auto number = [](std::size_t value) { return static_cast<int>(value); };
    const Windows& w = problem.windows;
    const auto type = problem.dtype == DType::bfloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    CUDNN(cudnnSetTensor4dDescriptor, x, CUDNN_TENSOR_NHWC, type, number(w.images),
          number(w.channels), number(w.height), number(w.width));
    CUDNN(cudnnSetTensor4dDescriptor, y, CUDNN_TENSOR_NHWC, type, number(w.images),
          number(problem.features), number(w.out_height()), number(w.out_width()));
    CUDNN(cudnnSetFilter4dDescriptor, weight, type, CUDNN_TENSOR_NHWC, number(problem.features),
          number(w.channels), number(w.kernel_height), number(w.kernel_width));
    CUDNN(cudnnSetConvolution2dDescriptor, convolution, number(w.padding), number(w.padding),
          number(w.stride), number(w.stride), 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    CUDNN(cudnnSetConvolutionMathType, convolution, problem.math);
  }
};

// The library's functions of a pass take two factors and a result.
struct Forward {  // y = x * weight
  static constexpr auto kOperation = "conv2d";
  static constexpr auto kName = "cudnnConvolutionForward";
  static constexpr auto kFind = &CudnnLibrary::cudnnGetConvolutionForwardAlgorithm_v7;
  static constexpr auto kSize = &CudnnLibrary::cudnnGetConvolutionForwardWorkspaceSize;
  static constexpr auto kRun = &CudnnLibrary::cudnnConvolutionForward;
  static constexpr auto kFirst = &Plan::x, kResult = &Plan::y;
  static constexpr auto kSecond = &Plan::weight;
  using Found = cudnnConvolutionFwdAlgoPerf_t;
};
struct BackwardData {  // grad_x of weight, grad_z
  static constexpr auto kOperation = "conv2d backward";
  static constexpr auto kName = "cudnnConvolutionBackwardData";
  static constexpr auto kFind = &CudnnLibrary::cudnnGetConvolutionBackwardDataAlgorithm_v7;
  static constexpr auto kSize = &CudnnLibrary::cudnnGetConvolutionBackwardDataWorkspaceSize;
  static constexpr auto kRun = &CudnnLibrary::cudnnConvolutionBackwardData;
  static constexpr auto kFirst = &Plan::weight;
  static constexpr auto kSecond = &Plan::y, kResult = &Plan::x;
  using Found = cudnnConvolutionBwdDataAlgoPerf_t;
};
struct BackwardFilter {  // grad_weight of x, grad_z
  static constexpr auto kOperation = "conv2d backward";
  static constexpr auto kName = "cudnnConvolutionBackwardFilter";
  static constexpr auto kFind = &CudnnLibrary::cudnnGetConvolutionBackwardFilterAlgorithm_v7;
  static constexpr auto kSize = &CudnnLibrary::cudnnGetConvolutionBackwardFilterWorkspaceSize;
  static constexpr auto kRun = &CudnnLibrary::cudnnConvolutionBackwardFilter;
  static constexpr auto kFirst = &Plan::x, kSecond = &Plan::y;
  static constexpr auto kResult = &Plan::weight;
  using Found = cudnnConvolutionBwdFilterAlgoPerf_t;
};

// More than this is not worth a faster algorithm.
constexpr std::size_t kMaxWorkspaceBytes = std::size_t{512} << 20;

// True for one of the library's answers that gives the same bits in every run, in the precision
// that is asked for.
template <typename Found>
bool is_usable(const Found& one, const Problem& problem) {
  const bool needs_fma = problem.math == CUDNN_FMA_MATH;
  return one.status == CUDNN_STATUS_SUCCESS && one.determinism == CUDNN_DETERMINISTIC &&
         one.memory <= kMaxWorkspaceBytes && !(needs_fma && one.mathType == CUDNN_TENSOR_OP_MATH) &&
         one.mathType != CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;  // to float16
}

// Takes the first usable algorithm of the library's list, which begins with the one that it expects
// to be fastest.
template <typename Pass>
void choose_algorithm(cudnnHandle_t handle, const Problem& problem, Plan& plan) {
  std::array<typename Pass::Found, 16> found{};
  int count = 0;
  check_cudnn(
      (cudnn().*Pass::kFind)(handle, plan.*Pass::kFirst, plan.*Pass::kSecond, plan.convolution,
                             plan.*Pass::kResult, int{found.size()}, &count, found.data()),
      fmt::format("the algorithms of {}", Pass::kName));
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    if (!is_usable(found[i], problem)) continue;
    // An algorithm is its number and its arithmetic. FMA_MATH stays, whatever the list calls it.
    const bool is_exact = problem.math == CUDNN_FMA_MATH;
    CUDNN(cudnnSetConvolutionMathType, plan.convolution,
          is_exact ? CUDNN_FMA_MATH : found[i].mathType);
    const cudnnStatus_t status =
        (cudnn().*Pass::kSize)(handle, plan.*Pass::kFirst, plan.*Pass::kSecond, plan.convolution,
                               plan.*Pass::kResult, found[i].algo, &plan.workspace_bytes);
    if (status != CUDNN_STATUS_SUCCESS || plan.workspace_bytes > kMaxWorkspaceBytes) continue;
    plan.algorithm = static_cast<int>(found[i].algo);
    return;
  }
}

// A refusal, whatever its status, is a line in the log, because there is another way. Throws
// Error{Cuda} if the GPU itself has failed.
void note_refusal(Stream& stream, const char* call, const Problem& problem, const char* why) {
  cudaGetLastError();
  cuda_stream(stream).is_capturing();  // throws the error of a GPU that has failed
  log_debug("cuDNN {} has no {} for {}, so its patches are multiplied: {}", cudnn_choice().version,
            call, problem.text(), why);
}

using Key = std::tuple<int, std::string_view, Problem>;  // GPU and pass

struct Plans {
  std::mutex mutex;
  std::map<Key, std::unique_ptr<Plan>> plans;
};

Plans& plans() {
  static Plans& instance = *new Plans;
  return instance;
}

// Returns nullptr if the library refuses the problem. The lock is not held while the
// library is asked, because a call of CUDA may wait for work that needs another thread.
template <typename Pass>
Plan* find_plan(Stream& stream, cudnnHandle_t handle, const Problem& problem) {
  const Key key{cuda_stream(stream).gpu(), Pass::kName, problem};
  std::unique_lock lock(plans().mutex);
  auto found = plans().plans.find(key);
  if (found == plans().plans.end()) {
    lock.unlock();
    require(!cuda_stream(stream).is_capturing(), ErrorCode::State, "conv2d",
            "{} is new and cannot be captured; run the step once before capturing it",
            problem.text());
    auto plan = std::make_unique<Plan>();
    try {
      plan->describe(problem);
      choose_algorithm<Pass>(handle, problem, *plan);
      if (!plan->algorithm) note_refusal(stream, Pass::kName, problem, "no algorithm is usable");
    } catch (const Error& error) {
      note_refusal(stream, Pass::kName, problem, error.what());
    }
    lock.lock();
    found = plans().plans.try_emplace(key, std::move(plan)).first;
  }
  Plan& plan = *found->second;
  return plan.algorithm && !plan.is_refused ? &plan : nullptr;
}

// --- the passes

// Enqueues a pass. Returns false, with nothing enqueued, if the library refuses it after all.
template <typename Pass>
bool launch(Stream& stream, cudnnHandle_t handle, const Problem& problem, Plan& plan,
            const TensorView& scratch, const void* first, const void* second, void* result) {
  std::optional<Storage> memory;
  void* workspace = nullptr;
  if (plan.workspace_bytes > 0) {
    const bool fits = scratch.num_elements * size_of(scratch.dtype) >= plan.workspace_bytes;
    workspace = fits ? scratch.data : memory.emplace(stream.device(), plan.workspace_bytes).data();
  }
  constexpr float kOne = 1, kZero = 0;
  LaunchScope scope(stream, Pass::kOperation);
  const cudnnStatus_t status = (cudnn().*Pass::kRun)(
      handle, &kOne, plan.*Pass::kFirst, first, plan.*Pass::kSecond, second, plan.convolution,
      static_cast<decltype(Pass::Found::algo)>(*plan.algorithm), workspace, plan.workspace_bytes,
      &kZero, plan.*Pass::kResult, result);
  const bool has_started = CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_EXECUTION_FAILED;
  if (status != CUDNN_STATUS_SUCCESS && !has_started) {
    plan.is_refused = true;
    note_refusal(stream, Pass::kName, problem, cudnn().cudnnGetErrorString(status));
    return false;
  }
  check_cudnn(status, Pass::kName);
  scope.finish(cudaSuccess);
  return true;
}

// A weight or its gradient as the library takes it: of the images' dtype, packed and aligned. The
// memory of a copy is freed at once: its next use comes later in the stream.
template <typename View>
class Packed {
 public:
  Packed(Stream& stream, DType dtype, const View& original) : stream_(stream), original_(original) {
    const bool is_packed = original.leading_dimension == original.cols;
    if (original.dtype == dtype && is_packed && is_aligned(original.data)) return;
    memory_.emplace(stream.device(), original.rows * original.cols * size_of(dtype));
    copy_ = matrix_view(memory_->data(), dtype, original.rows, original.cols);
  }
  auto data() const -> decltype(View::data) { return memory_ ? copy_.data : original_.data; }
  void read_original() const {
    if (memory_) convert_matrix(stream_, original_, copy_);
  }
  void write_original() const {
    if (memory_) convert_matrix(stream_, copy_, original_);
  }

 private:
  Stream& stream_;
  View original_;
  std::optional<Storage> memory_;
  MatrixView copy_;
};

void add_bias_and_activate(Stream& stream, const ConvForward& call) {
  if (!call.bias.data && call.activation == Activation::none && !call.preactivation.data) return;
  Product rest;
  rest.operation = "conv2d";
  rest.c = call.y;
  rest.bias = call.bias;
  rest.activation = call.activation;
  rest.preactivation = call.preactivation;
  finish(stream, rest);
}

}  // namespace

bool convolve_by_cudnn(Stream& stream, const ConvForward& call) {
  const std::optional<Problem> problem = problem_of(call.windows, call.x, call.y);
  if (!problem) return false;
  const Handle handle(stream);
  if (handle == nullptr) return false;
  Plan* const plan = find_plan<Forward>(stream, handle, *problem);
  if (plan == nullptr) return false;
  const Packed weight(stream, call.x.dtype, call.weight);
  weight.read_original();
  if (!launch<Forward>(stream, handle, *problem, *plan, call.scratch, call.x.data, weight.data(),
                       call.y.data)) {
    return false;
  }
  add_bias_and_activate(stream, call);
  return true;
}

ConvBackward left_by_cudnn(Stream& stream, const ConvBackward& call) {
  ConvBackward rest = call;
  const std::optional<Problem> problem = problem_of(call.windows, call.x, call.grad_z);
  if (!problem) return rest;
  const Handle handle(stream);
  if (handle == nullptr) return rest;
  Plan* const images = call.grad_x.data && is_aligned(call.grad_x.data)
                           ? find_plan<BackwardData>(stream, handle, *problem)
                           : nullptr;
  if (images) {
    const Packed weight(stream, call.x.dtype, call.weight);
    weight.read_original();
    if (launch<BackwardData>(stream, handle, *problem, *images, call.scratch, weight.data(),
                             call.grad_z.data, call.grad_x.data)) {
      rest.grad_x = {};
    }
  }
  Plan* const filter =
      call.grad_weight.data ? find_plan<BackwardFilter>(stream, handle, *problem) : nullptr;
  if (filter) {
    const Packed grad_weight(stream, call.x.dtype, call.grad_weight);
    if (launch<BackwardFilter>(stream, handle, *problem, *filter, call.scratch, call.x.data,
                               call.grad_z.data, grad_weight.data())) {
      grad_weight.write_original();
      rest.grad_weight = {};
    }
  }
  return rest;
}

void forget_cudnn() {
  const std::lock_guard lock(plans().mutex);
  plans().plans.clear();
  choose_cudnn_anew();
}

}  // namespace lockstep::kernels::cuda
