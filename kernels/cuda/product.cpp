// Reference: docs.nvidia.com/cuda/cublas, "Using the cuBLASLt API".
#include "kernels/cuda/product.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/log.h"
#include "engine/core/shape.h"
#include "engine/runtime/cuda/check.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/physical_gpus.h"
#include "kernels/cuda/launch.h"
#include "kernels/matmul_precision.h"

namespace lockstep::kernels::cuda {
namespace {

using runtime::cuda::cuda_stream;
using runtime::cuda::CudaEvent;
using runtime::cuda::CudaStream;
using runtime::cuda::CurrentGpu;
using Clock = std::chrono::steady_clock;

// --- a product in the library's words

void check_cublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(ErrorCode::Cuda, call, "failed: {} (cuBLAS status {})", cublasLtGetStatusString(status),
       static_cast<int>(status));
}

// The library's state on one physical GPU, shared by its logical devices and all threads (the
// library allows it). Never destroyed: tensors in static variables may be used until the very end.
cublasLtHandle_t cublas_lt(int gpu) {
  static std::mutex& mutex = *new std::mutex;
  static auto& handles = *new std::map<int, cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[gpu];
  if (handle == nullptr) {
    const CurrentGpu current(gpu);
    check_cublas(cublasLtCreate(&handle), "cublasLtCreate");
  }
  return handle;
}

// Owns one of the library's descriptors: host objects, about 100 ns each.
template <typename Object, cublasStatus_t (*kDestroy)(Object)>
struct Descriptor {
  Object object = nullptr;
  Descriptor() = default;
  ~Descriptor() {
    if (object != nullptr) kDestroy(object);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

cublasComputeType_t compute_type(const Product& product) {
  if (product.c.dtype == DType::float64) return CUBLAS_COMPUTE_64F;
  switch (matmul_precision()) {
    case MatmulPrecision::highest:
      return CUBLAS_COMPUTE_32F;
    case MatmulPrecision::high:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case MatmulPrecision::medium:
      return CUBLAS_COMPUTE_32F_FAST_16BF;
  }
  return CUBLAS_COMPUTE_32F;
}

// The library adds the bias on the way out, or a kernel of ours does afterwards.
enum class BiasBy { library, kernel };

struct Description {
  using Layout = Descriptor<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  Descriptor<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> matmul;
  Layout first;   // of the memory of b
  Layout second;  // of the memory of a
  Layout result;  // of c

  Description(const Product& product, BiasBy bias_by) {
    const cudaDataType_t type = product.c.dtype == DType::float64 ? CUDA_R_64F : CUDA_R_32F;
    check_cublas(cublasLtMatmulDescCreate(&matmul.object, compute_type(product), type),
                 "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, operation(product.transpose_b));
    set(CUBLASLT_MATMUL_DESC_TRANSB, operation(product.transpose_a));
    if (bias_by == BiasBy::library) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias.data);
    }
    describe(first, product.b, type, product.c.batch);
    describe(second, product.a, type, product.c.batch);
    describe(result, product.c, type, product.c.batch);
  }

 private:
  static cublasOperation_t operation(Transpose transpose) {
    return transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N;
  }
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t name, const Value& value) {
    check_cublas(cublasLtMatmulDescSetAttribute(matmul.object, name, &value, sizeof(value)),
                 "cublasLtMatmulDescSetAttribute");
  }
  // Row-major [rows, cols] as column-major [cols, rows].
  static void describe(Layout& layout, const ConstMatrixView& view, cudaDataType_t type,
                       std::size_t batch) {
    const auto leading_dimension =
        static_cast<std::int64_t>(std::max(view.leading_dimension, view.cols));
    check_cublas(
        cublasLtMatrixLayoutCreate(&layout.object, type, view.cols, view.rows, leading_dimension),
        "cublasLtMatrixLayoutCreate");
    if (batch == 1) return;
    const auto set = [&](cublasLtMatrixLayoutAttribute_t name, const auto& value) {
      check_cublas(cublasLtMatrixLayoutSetAttribute(layout.object, name, &value, sizeof(value)),
                   "cublasLtMatrixLayoutSetAttribute");
    };
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
        checked_narrow<std::int32_t>("matmul", "the number of matrices", batch));
    // A matrix that stands for the whole batch is the same one again and again.
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
        view.batch == 1 ? std::int64_t{0} : static_cast<std::int64_t>(view.batch_stride));
  }
};

// --- which products are the same

std::size_t inner_size(const Product& product) {
  return product.transpose_a == Transpose::yes ? product.a.rows : product.a.cols;
}

// The largest of 4, 8 and 16 that divides the addresses of all rows.
std::uint32_t alignment_of(const ConstMatrixView& view) {
  const std::size_t size = size_of(view.dtype);
  const std::size_t all = reinterpret_cast<std::uintptr_t>(view.data) |
                          view.leading_dimension * size |
                          (view.batch > 1 ? view.batch_stride * size : 0);
  return all % 16 == 0 ? 16 : all % 8 == 0 ? 8 : 4;
}

// Everything that decides which algorithms a product has and how fast they are, and nothing else.
// Pointers count by how they are aligned, so that a shard of a batch that begins at another row is
// the same product.
using ProductKey = std::array<std::int64_t, 19>;

// The first GPU of the same model.
int model_of(int gpu) {
  const auto& gpus = runtime::physical_gpus();
  int first = 0;
  while (first < gpu &&
         gpus[static_cast<std::size_t>(first)].name != gpus[static_cast<std::size_t>(gpu)].name) {
    ++first;
  }
  return first;
}

ProductKey key_of(Stream& stream, const Product& product) {
  const auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  const auto stride = [&](const ConstMatrixView& view) {
    return number(view.batch == 1 ? 0 : view.batch_stride);
  };
  const auto is_bias_aligned = reinterpret_cast<std::uintptr_t>(product.bias.data) % 16 == 0;
  return {model_of(cuda_stream(stream).gpu()),
          number(is_matmul_tuning_on()),
          number(compute_type(product)),
          number(product.transpose_a),
          number(product.transpose_b),
          number(product.c.rows),
          number(product.c.cols),
          number(inner_size(product)),
          number(product.c.batch),
          number(product.a.leading_dimension),
          number(product.b.leading_dimension),
          number(product.c.leading_dimension),
          stride(product.a),
          stride(product.b),
          stride(product.c),
          number(product.write),
          number(product.bias.data != nullptr) + number(is_bias_aligned),
          alignment_of(product.a) | alignment_of(product.b) << 8,
          alignment_of(product.c)};
}

// --- the library's algorithms

struct Plan {
  BiasBy bias_by = BiasBy::kernel;
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
};

// Whatever status the library answers to one algorithm, there are others: it is a refusal. Throws
// Error{Cuda} if the GPU itself has failed.
void note_refusal(Stream& stream, const char* call, cublasStatus_t status) {
  cudaGetLastError();
  cuda_stream(stream).is_capturing();  // throws the error of a GPU that has failed
  log_debug("{} refuses: {} (cuBLAS status {})", call, cublasLtGetStatusString(status),
            static_cast<int>(status));
}

// False for algorithms that give wrong results, or that do not say what they are. cuBLAS 12.6.3 to
// 13.7: those with the number 66, on Hopper and newer GPUs, that split the inner dimension into
// parts which do not divide it; the release notes of CUDA 13.4 say so.
bool is_trusted(Stream& stream, const cublasLtMatmulAlgo_t& algorithm, std::size_t depth) {
  constexpr std::int32_t kAffected = 66;
  const auto get = [&](cublasLtMatmulAlgoConfigAttributes_t name) -> std::optional<std::int32_t> {
    std::int32_t value = 0;
    std::size_t num_written = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoConfigGetAttribute(&algorithm, name, &value, sizeof(value), &num_written);
    if (status == CUBLAS_STATUS_SUCCESS) return value;
    note_refusal(stream, "cublasLtMatmulAlgoConfigGetAttribute", status);
    return std::nullopt;
  };
  const auto id = get(CUBLASLT_ALGO_CONFIG_ID);
  if (!id || *id != kAffected) return id.has_value();
  const auto num_splits = get(CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  return num_splits && (*num_splits <= 1 || depth % static_cast<std::size_t>(*num_splits) == 0);
}

// Appends the algorithms for a product, the one that the library thinks fastest first.
void add_candidates(Stream& stream, const Product& product, BiasBy bias_by,
                    std::vector<Plan>& plans) {
  constexpr int kMaxCandidates = 16;
  const int gpu = cuda_stream(stream).gpu();
  const CurrentGpu current(gpu);
  const Description description(product, bias_by);
  Descriptor<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference;
  check_cublas(cublasLtMatmulPreferenceCreate(&preference.object),
               "cublasLtMatmulPreferenceCreate");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    check_cublas(
        cublasLtMatmulPreferenceSetAttribute(preference.object, name, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kProductWorkspaceBytes);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(product.b));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(product.a));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(product.c));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(product.c));
  std::array<cublasLtMatmulHeuristicResult_t, kMaxCandidates> found{};
  int num_found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      cublas_lt(gpu), description.matmul.object, description.first.object,
      description.second.object, description.result.object, description.result.object,
      preference.object, kMaxCandidates, found.data(), &num_found);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return note_refusal(stream, "cublasLtMatmulAlgoGetHeuristic", status);
  }
  for (int i = 0; i < num_found; ++i) {
    const cublasLtMatmulHeuristicResult_t& one = found[static_cast<std::size_t>(i)];
    if (one.state == CUBLAS_STATUS_SUCCESS && one.workspaceSize <= kProductWorkspaceBytes &&
        is_trusted(stream, one.algo, inner_size(product))) {
      plans.push_back({bias_by, one.algo, one.workspaceSize});
    }
  }
}

// The library adds biases to float32 alone.
std::vector<Plan> candidates(Stream& stream, const Product& product) {
  std::vector<Plan> plans;
  if (product.bias.data != nullptr && product.c.dtype == DType::float32) {
    add_candidates(stream, product, BiasBy::library, plans);
  }
  if (plans.empty()) add_candidates(stream, product, BiasBy::kernel, plans);
  return plans;
}

// Enqueues the product; false if the library refuses, and then nothing is enqueued.
bool launch_product(Stream& stream, const Product& product, const Plan& plan) {
  void* const workspace = plan.workspace_bytes > 0 ? product_workspace(stream) : nullptr;
  {
    LaunchScope scope(stream, product.operation);
    const Description description(product, plan.bias_by);
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    const bool is_wide = product.c.dtype == DType::float64;
    const void* alpha = is_wide ? static_cast<const void*>(&wide_one) : &one;
    const void* none = is_wide ? static_cast<const void*>(&wide_zero) : &zero;
    const void* beta = product.write == Write::accumulate ? alpha : none;
    const cublasStatus_t status = cublasLtMatmul(
        cublas_lt(cuda_stream(stream).gpu()), description.matmul.object, alpha, product.b.data,
        description.first.object, product.a.data, description.second.object, beta, product.c.data,
        description.result.object, product.c.data, description.result.object, &plan.algorithm,
        workspace, plan.workspace_bytes, scope.handle());
    if (status != CUBLAS_STATUS_SUCCESS) {
      note_refusal(stream, "cublasLtMatmul", status);
      return false;
    }
    scope.finish(cudaSuccess);
  }
  if (product.bias.data != nullptr && plan.bias_by == BiasBy::kernel) {
    finish_linear(stream, product.c, product.bias, Activation::none, {});
  }
  return true;
}

// --- how long they take

// Memory for what timed products write. Not from the pool, whose blocks work of the compute stream
// may still use.
class TimingMemory {
 public:
  TimingMemory(int gpu, std::size_t num_bytes) : gpu_(gpu) {
    const CurrentGpu current(gpu_);
    if (cudaMalloc(&data_, num_bytes) == cudaSuccess) return;
    cudaGetLastError();
    data_ = nullptr;
  }
  ~TimingMemory() {
    const CurrentGpu current(gpu_);
    if (data_ != nullptr) runtime::cuda::ignore(cudaFree(data_));
  }
  TimingMemory(const TimingMemory&) = delete;
  TimingMemory& operator=(const TimingMemory&) = delete;

  void* data() const { return data_; }  // nullptr: there was none

 private:
  int gpu_;
  void* data_ = nullptr;
};

// Time of one launch of a plan, averaged over `count`; nothing if the library refuses it.
std::optional<double> microseconds(Stream& stream, const Product& product, const Plan& plan,
                                   int count) {
  const CudaEvent begin(cuda_stream(stream), CudaEvent::Timing::on);
  for (int i = 0; i < count; ++i) {
    if (!launch_product(stream, product, plan)) return std::nullopt;
  }
  const CudaEvent end(cuda_stream(stream), CudaEvent::Timing::on);
  end.wait();
  return end.seconds_since(begin) * 1e6 / count;
}

// The fastest plan; nothing without memory, or if the library refuses all. Inputs are read where
// they are, whatever they hold: the time depends on sizes, not on values.
std::optional<Plan> fastest(Stream& stream, Product product, const std::vector<Plan>& plans) {
  const MatrixView& c = product.c;
  const TimingMemory memory(
      cuda_stream(stream).gpu(),
      ((c.batch - 1) * c.batch_stride + (c.rows - 1) * c.leading_dimension + c.cols) *
          size_of(c.dtype));
  if (memory.data() == nullptr) return std::nullopt;
  product.c.data = memory.data();
  const CurrentGpu current(cuda_stream(stream).gpu());
  std::optional<Plan> best;
  double first = 0, least = INFINITY;
  for (const Plan& plan : plans) {
    if (!launch_product(stream, product, plan)) continue;  // loads the kernel
    // A GPU that has been idle takes some milliseconds to raise its clock.
    constexpr std::chrono::milliseconds kRisesWithin{20};
    for (const auto start = Clock::now(); !best && Clock::now() - start < kRisesWithin;) {
      microseconds(stream, product, plan, 1);
    }
    std::optional<double> time = microseconds(stream, product, plan, 1);
    if (!time || *time > 2 * least + 200) continue;  // hopeless
    const int count = static_cast<int>(std::clamp(200 / *time, 1.0, 20.0));
    for (int i = 0; i < 4; ++i) {
      time = std::min(*time, microseconds(stream, product, plan, count).value_or(*time));
    }
    if (!best) first = *time;
    if (*time >= least) continue;
    best = plan;
    least = *time;
  }
  log_debug("timed {} algorithms of {} [{}, {}] x {}: {:.2f} us, the first {:.2f} us", plans.size(),
            product.operation, c.rows, c.cols, inner_size(product), least, first);
  return best;
}

// --- what was chosen

struct Table {
  std::mutex mutex;  // guards all below; held while a product is timed
  std::map<ProductKey, Plan> plans;
  std::size_t num_timed = 0;
};

Table& table() {
  static Table& instance = *new Table;
  return instance;
}

std::optional<Plan> look_up(const ProductKey& key) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().plans.find(key);
  return found == table().plans.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Plan> time_product(Stream& stream, const Product& product, const ProductKey& key) {
  // Earlier work of the stream would be timed along. It may need a thread that waits for the table,
  // so it is waited for before, and if it takes too long, nothing is timed.
  constexpr std::chrono::seconds kLongestWait{2};
  if (!stream.record()->wait(runtime::Clock::now() + kLongestWait)) return std::nullopt;
  const std::lock_guard lock(table().mutex);
  if (const auto found = table().plans.find(key); found != table().plans.end()) {
    return found->second;
  }
  const std::optional<Plan> plan = fastest(stream, product, candidates(stream, product));
  if (!plan) return std::nullopt;
  table().plans[key] = *plan;
  ++table().num_timed;
  return plan;
}

// The first algorithm that runs.
void run_any(Stream& stream, const Product& product, const ProductKey& key) {
  for (const Plan& plan : candidates(stream, product)) {
    if (!launch_product(stream, product, plan)) continue;
    const std::lock_guard lock(table().mutex);
    table().plans[key] = plan;
    return;
  }
  fail(ErrorCode::Cuda, product.operation,
       "cuBLASLt {} runs none of its algorithms for [{}, {}] x {} in {}; LOCKSTEP_LOG=debug says "
       "why",
       cublasLtGetVersion(), product.c.rows, product.c.cols, inner_size(product),
       to_string(product.c.dtype));
}

}  // namespace

void run(Stream& stream, const Product& product) {
  if (product.c.num_elements() == 0) return;
  if (inner_size(product) == 0) {  // a sum of nothing: the library need not know it
    if (product.write == Write::overwrite) zero_matrix(stream, product.c);
    if (product.bias.data) finish_linear(stream, product.c, product.bias, Activation::none, {});
    return;
  }
  const ProductKey key = key_of(stream, product);
  std::optional<Plan> plan = look_up(key);
  if (!plan) {
    require(!cuda_stream(stream).is_capturing(), ErrorCode::State, product.operation,
            "the product [{}, {}] x {} is new and cannot be captured; run the step once before "
            "capturing it",
            product.c.rows, product.c.cols, inner_size(product));
    if (is_matmul_tuning_on()) plan = time_product(stream, product, key);
  }
  if (!plan || !launch_product(stream, product, *plan)) run_any(stream, product, key);
}

std::size_t num_timed_products() {
  const std::lock_guard lock(table().mutex);
  return table().num_timed;
}

void forget_products() {
  const std::lock_guard lock(table().mutex);
  table().plans.clear();
  table().num_timed = 0;
}

}  // namespace lockstep::kernels::cuda
