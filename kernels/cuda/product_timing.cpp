#include "kernels/cuda/product_timing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "engine/runtime/cuda/check.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/cuda/device_wide_calls.h"
#include "kernels/cuda/epilogues.h"
#include "kernels/cuda/linear_finish.h"

namespace lockstep::kernels::cuda {
namespace {

using runtime::cuda::cuda_stream;
using runtime::cuda::CudaEvent;
using runtime::cuda::CudaStream;
using runtime::cuda::CurrentGpu;

constexpr double kMicrosecondsPerRun = 200;  // of the products in one graph, if they are small
constexpr double kMaxPerGraph = 20;
constexpr int kRuns = 3;
constexpr double kHopeless = 2;  // times the best one so far, measured once

std::size_t num_bytes_of(const MatrixView& view) {
  if (view.data == nullptr || view.num_elements() == 0) return 0;
  const std::size_t last =
      (view.batch - 1) * view.batch_stride + (view.rows - 1) * view.leading_dimension + view.cols;
  return last * size_of(view.dtype);
}

std::size_t num_mask_bytes(const Product& product) {
  return product.mask_use == Product::Mask::none ? 0
                                                 : relu_mask_bytes(product.c.rows, product.c.cols);
}

std::size_t aligned(std::size_t num_bytes) {
  return (num_bytes + 255) / 256 * 256;
}

// Everything that is launched inside goes into a graph. Calls that other threads make meanwhile are
// not disturbed (ThreadLocal).
class CapturedGraph {
 public:
  template <typename Issue>
  CapturedGraph(cudaStream_t stream, const Issue& issue) {
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    try {
      issue();
    } catch (...) {
      runtime::cuda::ignore(cudaStreamEndCapture(stream, &graph_));
      destroy();
      throw;
    }
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph_));
    const cudaError_t error = cudaGraphInstantiate(&executable_, graph_, 0);
    if (error != cudaSuccess) destroy();
    runtime::cuda::check(error, "cudaGraphInstantiate");
  }
  ~CapturedGraph() { destroy(); }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  cudaGraphExec_t get() const { return executable_; }

 private:
  void destroy() {
    if (executable_ != nullptr) runtime::cuda::ignore(cudaGraphExecDestroy(executable_));
    if (graph_ != nullptr) runtime::cuda::ignore(cudaGraphDestroy(graph_));
  }

  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

// Microseconds between two points of the stream.
template <typename Issue>
double time_of(const CudaStream& stream, const Issue& issue) {
  const CudaEvent begin(stream, CudaEvent::Timing::on);
  issue();
  const CudaEvent end(stream, CudaEvent::Timing::on);
  end.wait();
  return end.seconds_since(begin) * 1e6;
}

}  // namespace

Stream& timing_stream(Stream& like) {
  static std::mutex& mutex = *new std::mutex;
  static auto& streams = *new std::map<int, CudaStream*>;
  const CudaStream& of = cuda_stream(like);
  const std::lock_guard lock(mutex);
  CudaStream*& found = streams[of.gpu()];
  if (found == nullptr) found = new CudaStream(like.device(), of.gpu(), of.fault());
  return *found;
}

ProductTimer::ProductTimer(Stream& stream, const Product& product)
    : stream_(timing_stream(stream)), product_(product) {
  const CurrentGpu current(cuda_stream(stream_).gpu());
  const std::size_t c = aligned(num_bytes_of(product.c));
  const std::size_t preactivation = aligned(num_bytes_of(product.preactivation));
  const std::size_t mask = aligned(num_mask_bytes(product));
  const std::size_t sums = aligned(product.column_sums.num_bytes());
  // Not from the pool: what that hands out may still be in use by work of the compute stream.
  const auto alone = runtime::cuda::hold_device_wide_calls();
  if (cudaMalloc(&memory_, c + preactivation + mask + sums) != cudaSuccess) {
    cudaGetLastError();
    memory_ = nullptr;
    return;
  }
  auto* next = static_cast<std::byte*>(memory_);
  const auto take = [&next](std::size_t num_bytes) {
    return std::exchange(next, next + num_bytes);
  };
  product_.c.data = take(c);
  if (preactivation > 0) product_.preactivation.data = take(preactivation);
  if (mask > 0) product_.mask.data = take(mask);
  if (sums > 0) product_.column_sums.data = take(sums);
}

ProductTimer::~ProductTimer() {
  if (memory_ == nullptr) return;
  const CurrentGpu current(cuda_stream(stream_).gpu());
  const auto alone = runtime::cuda::hold_device_wide_calls();
  runtime::cuda::ignore(cudaFree(memory_));
}

bool ProductTimer::launch_once(const ProductPlan& plan) {
  if (try_launch(stream_, product_, plan) == Launched::refused) return false;
  const bool lacks_mask = product_.mask_use == Product::Mask::wanted &&
                          plan.epilogue != CUBLASLT_EPILOGUE_RELU_AUX &&
                          plan.epilogue != CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
  if (lacks_mask) {
    finish_backward(stream_, product_.activation, product_.c, product_.c, product_.c);
  }
  return true;
}

double ProductTimer::run_graph(cudaGraphExec_t graph) const {
  const CudaStream& stream = cuda_stream(stream_);
  return time_of(stream, [&] { CUDA_CHECK(cudaGraphLaunch(graph, stream.handle())); });
}

std::optional<double> ProductTimer::microseconds(const ProductPlan& plan,
                                                 const std::optional<double>& best_so_far) {
  const CudaStream& stream = cuda_stream(stream_);
  const CurrentGpu current(stream.gpu());
  // The first call loads the kernels; the second says how many to put into a graph.
  if (!launch_once(plan)) return std::nullopt;
  const double once = time_of(stream, [&] { launch_once(plan); });
  if (best_so_far && once > kHopeless * *best_so_far + kMicrosecondsPerRun) return std::nullopt;
  const auto per_graph =
      static_cast<int>(std::clamp(std::floor(kMicrosecondsPerRun / once), 1.0, kMaxPerGraph));
  const CapturedGraph graph(stream.handle(), [&] {
    for (int i = 0; i < per_graph; ++i) launch_once(plan);
  });
  run_graph(graph.get());
  double least = run_graph(graph.get());
  for (int i = 1; i < kRuns; ++i) least = std::min(least, run_graph(graph.get()));
  return least / per_graph;
}

}  // namespace lockstep::kernels::cuda
