#include "kernels/cuda/product_timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>

#include "engine/core/error.h"
#include "engine/core/log.h"
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

using Clock = std::chrono::steady_clock;

constexpr double kMicrosecondsPerGraph = 200;  // of the products in one graph, if they are small
constexpr double kMaxPerGraph = 20;
constexpr double kMicrosecondsPerRun = 800;  // of the launches of a graph, if it is small
constexpr int kMaxLaunches = 4;
constexpr int kRuns = 3;
// A GPU lowers its clock when it is idle, and takes some milliseconds to raise it again.
constexpr std::chrono::milliseconds kCoolsAfter{20};
constexpr std::chrono::milliseconds kRisesWithin{20};
constexpr double kHopeless = 2;  // times the best one so far, measured once

// Whether or not there is data yet.
std::size_t num_bytes_of(const MatrixView& view) {
  if (view.num_elements() == 0) return 0;
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

// When something was last timed on a GPU; long ago where nothing was. REQUIRES: whoever times is
// alone (tuner.h).
Clock::time_point& last_timing(int gpu) {
  static auto& times = *new std::map<int, Clock::time_point>;
  return times[gpu];
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
  const bool keeps = product.preactivation.data != nullptr;
  const std::size_t preactivation = keeps ? aligned(num_bytes_of(product.preactivation)) : 0;
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
  const bool lacks_mask =
      product_.mask_use == Product::Mask::wanted && !writes_relu_mask(plan.epilogue);
  if (lacks_mask) {
    finish_backward(stream_, product_.activation, product_.c, product_.c, product_.c);
  }
  return true;
}

// Microseconds of so many launches.
double ProductTimer::run_graph(cudaGraphExec_t graph, int num_launches) const {
  const CudaStream& stream = cuda_stream(stream_);
  return time_of(stream, [&] {
    for (int i = 0; i < num_launches; ++i) CUDA_CHECK(cudaGraphLaunch(graph, stream.handle()));
  });
}

// Keeps the GPU busy until its clock has risen, unless it has been until now.
void ProductTimer::spin(cudaGraphExec_t graph) const {
  const Clock::time_point last = last_timing(cuda_stream(stream_).gpu());
  const Clock::time_point start = Clock::now();
  if (start - last < kCoolsAfter) return;
  while (Clock::now() - start < kRisesWithin) run_graph(graph, kMaxLaunches);
}

std::optional<double> ProductTimer::microseconds(const ProductPlan& plan,
                                                 const std::optional<double>& best_so_far) {
  const CurrentGpu current(cuda_stream(stream_).gpu());
  try {
    return measure(plan, best_so_far);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Cuda) throw;
    cudaGetLastError();
    cuda_stream(stream_).is_capturing();  // throws if the GPU has failed for good
    log_debug("cannot be timed: {}", error.what());
    return std::nullopt;
  }
}

std::optional<double> ProductTimer::measure(const ProductPlan& plan,
                                            const std::optional<double>& best_so_far) {
  const CudaStream& stream = cuda_stream(stream_);
  // The first call loads the kernels; the second says how many to put into a graph.
  if (!launch_once(plan)) return std::nullopt;
  const double once = time_of(stream, [&] { launch_once(plan); });
  if (best_so_far && once > kHopeless * *best_so_far + kMicrosecondsPerGraph) return once;
  if (num_per_graph_ == 0) {
    num_per_graph_ =
        static_cast<int>(std::clamp(std::floor(kMicrosecondsPerGraph / once), 1.0, kMaxPerGraph));
  }
  bool is_launched = true;
  const CapturedGraph graph(stream.handle(), [&] {
    for (int i = 0; i < num_per_graph_ && is_launched; ++i) is_launched = launch_once(plan);
  });
  if (!is_launched) return std::nullopt;
  spin(graph.get());
  const double first = run_graph(graph.get(), 1);
  const auto num_launches =
      static_cast<int>(std::clamp(kMicrosecondsPerRun / first, 1.0, double{kMaxLaunches}));
  double least = run_graph(graph.get(), num_launches);
  for (int i = 1; i < kRuns; ++i) least = std::min(least, run_graph(graph.get(), num_launches));
  last_timing(stream.gpu()) = Clock::now();
  return least / (num_launches * num_per_graph_);
}

}  // namespace lockstep::kernels::cuda
