// The passes: checks a call, and queues the convolution on the handle's stream.
#include <algorithm>
#include <array>
#include <cstring>

#include "tests/emulated_gpu/cudnn/context.h"
#include "tests/emulated_gpu/cudnn/problem.h"
#include "tests/emulated_gpu/runtime.h"

using namespace emulated_gpu;
using namespace emulated_gpu::cudnn;

namespace {

std::array<std::atomic<std::size_t>, 3> numbers_run{};

// A handle serves one thread at a time.
class Use {
 public:
  explicit Use(cudnnContext& context)
      : context_(context), is_first_(!context.is_in_use.exchange(true)) {}
  ~Use() {
    if (is_first_) context_.is_in_use = false;
  }
  bool is_alone() const { return is_first_; }

 private:
  cudnnContext& context_;
  bool is_first_;
};

bool is_misaligned(const void* pointer, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0;
}

// True if so many bytes from there on belong to one allocation of the GPU. REQUIRES: the lock.
bool is_memory_of(int gpu, const void* pointer, std::size_t size) {
  const auto found = find_allocation(pointer);
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  return found && found->allocation.kind == Allocation::Kind::device &&
         found->allocation.gpu == gpu &&
         address + size <= found->start + found->allocation.num_bytes;
}

// A pass as a call describes it: which of the problem's tensors are its factors and its result.
struct Call {
  Pass pass{};
  Problem problem;

  const cudnnTensorStruct& first() const { return pass == Pass::data ? problem.filter : problem.x; }
  const cudnnTensorStruct& second() const {
    return pass == Pass::forward ? static_cast<const cudnnTensorStruct&>(problem.filter)
                                 : problem.y;
  }
  const cudnnTensorStruct& result() const {
    return pass == Pass::forward ? problem.y
           : pass == Pass::data  ? problem.x
                                 : static_cast<const cudnnTensorStruct&>(problem.filter);
  }
};

const Algorithm* find_algorithm(Pass pass, int number) {
  const Algorithm* const all = algorithms_of(pass);
  const Algorithm* const found = std::find_if(
      all, all + kNumAlgorithms, [&](const auto& one) { return one.number == number; });
  return found == all + kNumAlgorithms ? nullptr : found;
}

template <typename Found>
Found answer_of(const Call& call, const Algorithm& algorithm) {
  Found result{};
  result.algo = static_cast<decltype(result.algo)>(algorithm.number);
  result.status = CUDNN_STATUS_SUCCESS;
  result.time = -1;
  result.memory = workspace_bytes(call.problem, algorithm);
  result.determinism = wishes().has_deterministic[static_cast<std::size_t>(call.pass)]
                           ? algorithm.determinism
                           : CUDNN_NON_DETERMINISTIC;
  result.mathType = call.problem.convolution.math;
  return result;
}

template <typename Found>
cudnnStatus_t find(cudnnHandle_t handle, const Call& call, int num_asked, int* num_found,
                   Found* found) {
  if (handle == nullptr || num_found == nullptr || found == nullptr) {
    return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  }
  if (num_asked < 1) return CUDNN_STATUS_BAD_PARAM;
  *num_found = 0;
  const cudnnStatus_t status = check_problem(call.problem);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (wishes().finding != CUDNN_STATUS_SUCCESS) return wishes().finding;
  {
    // As in cuBLASLt, a heuristic may make calls that break a capture.
    const std::lock_guard lock(state().mutex);
    if (check_call_is_safe() != cudaSuccess) return CUDNN_STATUS_INTERNAL_ERROR;
  }
  const auto add = [&](const Found& one) {
    if (*num_found < num_asked) found[(*num_found)++] = one;
  };
  const Algorithm* const all = algorithms_of(call.pass);
  for (std::size_t i = 0; i < kNumAlgorithms; ++i) add(answer_of<Found>(call, all[i]));
  Found missing = answer_of<Found>(call, {.number = kMissing});
  missing.status = CUDNN_STATUS_NOT_SUPPORTED;
  add(missing);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t size(cudnnHandle_t handle, const Call& call, int number, std::size_t* bytes) {
  if (handle == nullptr || bytes == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  const cudnnStatus_t status = check_problem(call.problem);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  const Algorithm* const algorithm = find_algorithm(call.pass, number);
  if (algorithm == nullptr) return CUDNN_STATUS_NOT_SUPPORTED;
  *bytes = workspace_bytes(call.problem, *algorithm);
  return CUDNN_STATUS_SUCCESS;
}

struct Workspace {
  void* data;
  std::size_t num_bytes;
};

cudnnStatus_t check_memory(const Call& call, const Operands& operands, const Workspace& workspace,
                           std::size_t needed, int gpu) {
  if (operands.first == nullptr || operands.second == nullptr || operands.result == nullptr) {
    return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  }
  if (needed > 0 && workspace.data == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (needed > workspace.num_bytes) return CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT;
  // Its kernels read 16 bytes at a time.
  for (const void* pointer :
       {operands.first, operands.second, static_cast<const void*>(operands.result),
        static_cast<const void*>(workspace.data)}) {
    if (is_misaligned(pointer, 16)) return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
  }
  const bool is_there = is_memory_of(gpu, operands.first, num_bytes(call.first())) &&
                        is_memory_of(gpu, operands.second, num_bytes(call.second())) &&
                        is_memory_of(gpu, operands.result, num_bytes(call.result())) &&
                        (needed == 0 || is_memory_of(gpu, workspace.data, workspace.num_bytes));
  return is_there ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

// The kernels of an algorithm are loaded together, at its first convolution.
const void* kernel_of(Pass pass, const Algorithm& algorithm) {
  static const char kernels[3][8] = {};
  return &kernels[static_cast<std::size_t>(pass)][algorithm.number];
}

cudnnStatus_t run(cudnnHandle_t handle, const Call& call, int number, Operands operands,
                  const void* alpha, const void* beta, const Workspace& workspace) {
  if (handle == nullptr || alpha == nullptr || beta == nullptr) {
    return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  }
  const Use use(*handle);
  if (!use.is_alone()) return CUDNN_STATUS_INTERNAL_ERROR;
  std::size_t needed = 0;
  const cudnnStatus_t status = size(handle, call, number, &needed);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (wishes().running != CUDNN_STATUS_SUCCESS) return wishes().running;
  const Algorithm algorithm = *find_algorithm(call.pass, number);
  std::memcpy(&operands.alpha, alpha, sizeof(float));  // both are on the host, and read by the call
  std::memcpy(&operands.beta, beta, sizeof(float));
  load_kernel(kernel_of(call.pass, algorithm));
  const std::lock_guard lock(state().mutex);
  const auto stream = find_stream(handle->stream);
  if (!stream || stream->gpu != current_gpu()) return CUDNN_STATUS_EXECUTION_FAILED;
  const cudnnStatus_t found = check_memory(call, operands, workspace, needed, stream->gpu);
  if (found != CUDNN_STATUS_SUCCESS) return found;
  const auto pass = static_cast<std::size_t>(call.pass);
  const cudaError_t error = submit(*stream, [=] {
    static std::array<std::atomic<unsigned>, 3> runs{};  // of each pass
    // Work that shares a workspace at the same time is spoiled: a race to be seen.
    if (needed > 0) std::memset(workspace.data, 0xFF, needed);
    const bool is_reversed =
        algorithm.determinism == CUDNN_NON_DETERMINISTIC && runs[pass]++ % 2 == 1;
    compute(call.pass, call.problem, algorithm, operands, is_reversed);
  });
  if (error != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED;
  ++numbers_run[pass];
  return CUDNN_STATUS_SUCCESS;
}

// The call that these descriptors describe.
Call call_of(Pass pass, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t filter,
             cudnnTensorDescriptor_t y, cudnnConvolutionDescriptor_t convolution) {
  return {pass, {*x, *y, *filter, *convolution}};
}

}  // namespace

namespace emulated_gpu::cudnn {

std::size_t num_run(Pass pass) {
  return numbers_run[static_cast<std::size_t>(pass)];
}

}  // namespace emulated_gpu::cudnn

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t y,
    const int num_asked, int* num_found, cudnnConvolutionFwdAlgoPerf_t* found) {
  return find(handle, call_of(Pass::forward, x, w, y, convolution), num_asked, num_found, found);
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t y,
    cudnnConvolutionFwdAlgo_t algorithm, std::size_t* num_bytes) {
  return size(handle, call_of(Pass::forward, x, w, y, convolution), algorithm, num_bytes);
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      const cudnnTensorDescriptor_t of_x, const void* x,
                                      const cudnnFilterDescriptor_t of_w, const void* w,
                                      const cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                                      std::size_t num_bytes, const void* beta,
                                      const cudnnTensorDescriptor_t of_y, void* y) {
  return run(handle, call_of(Pass::forward, of_x, of_w, of_y, convolution), algorithm, {x, w, y},
             alpha, beta, {workspace, num_bytes});
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx,
    const int num_asked, int* num_found, cudnnConvolutionBwdDataAlgoPerf_t* found) {
  return find(handle, call_of(Pass::data, dx, w, dy, convolution), num_asked, num_found, found);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx,
    cudnnConvolutionBwdDataAlgo_t algorithm, std::size_t* num_bytes) {
  return size(handle, call_of(Pass::data, dx, w, dy, convolution), algorithm, num_bytes);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t of_w, const void* w,
                                           const cudnnTensorDescriptor_t of_dy, const void* dy,
                                           const cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           std::size_t num_bytes, const void* beta,
                                           const cudnnTensorDescriptor_t of_dx, void* dx) {
  return run(handle, call_of(Pass::data, of_dx, of_w, of_dy, convolution), algorithm, {w, dy, dx},
             alpha, beta, {workspace, num_bytes});
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw,
    const int num_asked, int* num_found, cudnnConvolutionBwdFilterAlgoPerf_t* found) {
  return find(handle, call_of(Pass::filter, x, dw, dy, convolution), num_asked, num_found, found);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw,
    cudnnConvolutionBwdFilterAlgo_t algorithm, std::size_t* num_bytes) {
  return size(handle, call_of(Pass::filter, x, dw, dy, convolution), algorithm, num_bytes);
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t of_x, const void* x,
                                             const cudnnTensorDescriptor_t of_dy, const void* dy,
                                             const cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm,
                                             void* workspace, std::size_t num_bytes,
                                             const void* beta, const cudnnFilterDescriptor_t of_dw,
                                             void* dw) {
  return run(handle, call_of(Pass::filter, of_x, of_dw, of_dy, convolution), algorithm, {x, dy, dw},
             alpha, beta, {workspace, num_bytes});
}
