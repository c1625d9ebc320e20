#include "kernels/cuda/product.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/log.h"
#include "engine/runtime/cuda/check.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/storage.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/product_file.h"
#include "kernels/cuda/product_plans.h"
#include "kernels/cuda/product_words.h"

namespace lockstep::kernels::cuda {
namespace {

using runtime::cuda::cuda_stream;
using runtime::cuda::CudaEvent;
using runtime::cuda::CudaStream;
using runtime::cuda::CurrentGpu;
using Clock = std::chrono::steady_clock;

// A matrix as float32 or bfloat16, with its rows aligned as tensor cores need them: a copy unless
// it is so already. The memory of a copy is freed at once: its next use comes later in the stream.
class Aligned {
 public:
  enum class Content { copied, none };

  Aligned(Stream& stream, DType dtype, const ConstMatrixView& from,
          Content content = Content::copied)
      : view_(from) {
    if (from.dtype == dtype && alignment_of(from) == 16) return;
    const std::size_t stride = (from.cols + 7) / 8 * 8;
    memory_.emplace(stream.device(), from.batch * from.rows * stride * size_of(dtype));
    copy_ = {memory_->data(), dtype, from.rows, from.cols, stride, from.batch, from.rows * stride};
    view_ = copy_;
    if (content == Content::copied) convert_matrix(stream, from, copy_);
  }
  const ConstMatrixView& view() const { return view_; }
  const MatrixView& copy() const { return copy_; }

 private:
  std::optional<runtime::Storage> memory_;
  MatrixView copy_;
  ConstMatrixView view_;
};

// A product in the library's terms with the algorithm that runs it, for the thread that made it.
struct Call {
  Plan plan;
  Description description;

  Call(const Product& product, const Plan& chosen)
      : plan(chosen), description(product, chosen.finish_by) {}
};

// Enqueues the product. Returns false, with nothing changed, if the library refuses.
bool launch_product(Stream& stream, const Product& product, Call& call) {
  const Plan& plan = call.plan;
  Description& description = call.description;
  void* const workspace = plan.workspace_bytes > 0 ? product_workspace(stream) : nullptr;
  std::optional<Aligned> rounded;
  if (plan.finish_by == FinishBy::library) {
    const auto& [bias, dtype, cols] = product.bias;
    if (dtype != product.c.dtype) {
      rounded.emplace(stream, product.c.dtype, matrix_view(bias, dtype, 1, cols));
    }
    description.set_finish(rounded ? rounded->view().data : bias, product.preactivation);
  }
  {
    LaunchScope scope(stream, product.operation);
    constexpr float kOne = 1, kZero = 0;
    constexpr double kWideOne = 1, kWideZero = 0;
    const bool is_wide = product.c.dtype == DType::float64;
    const void* alpha = is_wide ? static_cast<const void*>(&kWideOne) : &kOne;
    const void* none = is_wide ? static_cast<const void*>(&kWideZero) : &kZero;
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
  if (plan.finish_by == FinishBy::kernel && has_finish(product)) finish(stream, product);
  return true;
}

// --- how long they take

// The time of one launch of a plan, averaged over `count`; nullopt if the library refuses it.
std::optional<double> microseconds(Stream& stream, const Product& product, Call& call, int count) {
  const CudaEvent begin(cuda_stream(stream), CudaEvent::Timing::on);
  for (int i = 0; i < count; ++i) {
    if (!launch_product(stream, product, call)) return std::nullopt;
  }
  const CudaEvent end(cuda_stream(stream), CudaEvent::Timing::on);
  end.wait();
  return end.seconds_since(begin) * 1e6 / count;
}

// Memory for a timed product's result, which no enqueued work uses; nullptr if there is none.
std::unique_ptr<runtime::Storage> timing_memory(Stream& stream, const MatrixView& c) {
  const std::size_t num_elements =
      (c.batch - 1) * c.batch_stride + (c.rows - 1) * c.leading_dimension + c.cols;
  runtime::LogicalDevice& device = stream.device();
  try {
    return std::make_unique<runtime::Storage>(device, num_elements * size_of(c.dtype),
                                              device.copy_pool());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Device) throw;
    return nullptr;
  }
}

// The fastest plan; nullopt without memory, or if the library refuses all. Inputs are read in
// place, whatever their values: the time depends on sizes, not on values.
std::optional<Plan> fastest(Stream& stream, Product product, const std::vector<Plan>& plans) {
  const MatrixView& c = product.c;
  const std::unique_ptr<runtime::Storage> memory = timing_memory(stream, c);
  if (memory == nullptr) return std::nullopt;
  product.c.data = memory->data();
  const CurrentGpu current(cuda_stream(stream).gpu());
  std::optional<Plan> best;
  double first = 0, least = INFINITY;
  for (const Plan& plan : plans) {
    Call call(product, plan);
    if (!launch_product(stream, product, call)) continue;  // loads the kernel
    // A GPU that has been idle takes some milliseconds to raise its clock.
    constexpr std::chrono::milliseconds kRisesWithin{20};
    for (const auto start = Clock::now(); !best && Clock::now() - start < kRisesWithin;) {
      microseconds(stream, product, call, 1);
    }
    std::optional<double> time = microseconds(stream, product, call, 1);
    if (!time || *time > 2 * least + 200) continue;  // hopeless
    const int count = static_cast<int>(std::clamp(200 / *time, 1.0, 20.0));
    for (int i = 0; i < 4; ++i) {
      time = std::min(*time, microseconds(stream, product, call, count).value_or(*time));
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

// --- the chosen algorithms

// One table for all threads. Its keys name the GPU's model, not the GPU.
struct Table {
  std::mutex mutex;  // guards all but the counters; held while a product is timed
  std::map<ProductKey, Plan> plans;
  std::set<ProductKey> missing;  // bfloat16 products without an algorithm
  std::set<int> read_models;     // GPU models, as in model_of(), whose file has been read
  // By model: what was timed and is not in its file yet.
  std::map<int, std::map<ProductKey, Plan>> unkept;
  std::size_t num_timed = 0;
  double seconds = 0;     // that timing has taken
  bool has_told = false;  // true if the log says how long the first step's timing took
  std::atomic<std::ptrdiff_t> num_untold{0};  // products to enqueue before it does
  std::atomic<std::size_t> num_missing{0};
  std::atomic<std::size_t> num_cleared{0};
};

Table& table() {
  static Table& instance = *new Table;
  return instance;
}

// The calling thread's products, which need no lock and no new descriptor.
std::unordered_map<ProductKey, Call, KeyHash>& calls_of_thread() {
  thread_local std::unordered_map<ProductKey, Call, KeyHash> calls;
  thread_local std::size_t num_cleared = 0;
  const std::size_t now = table().num_cleared.load(std::memory_order_relaxed);
  if (num_cleared != now) calls.clear();
  num_cleared = now;
  return calls;
}

std::optional<Plan> look_up(const ProductKey& key) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().plans.find(key);
  return found == table().plans.end() ? std::nullopt : std::optional(found->second);
}

// Writes what was timed to its file. REQUIRES: the table's lock is held.
void keep_timed(Table& all) {
  for (const auto& [model, products] : all.unkept) keep_products(model, products);
  all.unkept.clear();
}

// Returns the product's plan, from the table or the file of an earlier run, or by timing it.
std::optional<Plan> time_product(Stream& stream, const Product& product, const ProductKey& key) {
  // Earlier work of the stream would be timed too. It may need a thread that waits for the table,
  // so it is waited for before the lock; if it takes too long, nothing is timed.
  constexpr std::chrono::seconds kLongestWait{2};
  if (!stream.record()->wait(runtime::Clock::now() + kLongestWait)) return std::nullopt;
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  const int model = static_cast<int>(key[0]);
  if (all.read_models.insert(model).second) all.plans.merge(read_products(model));
  if (const auto found = all.plans.find(key); found != all.plans.end()) return found->second;
  if (all.num_timed == 0) {
    log_info(
        "timing cuBLASLt's algorithms for each new product: the first step takes longer "
        "(LOCKSTEP_TUNING=off takes the first one)");
  }
  const auto start = Clock::now();
  const std::optional<Plan> plan = fastest(stream, product, candidates(stream, product));
  if (!plan) return std::nullopt;
  all.plans[key] = *plan;
  all.unkept[model][key] = *plan;
  ++all.num_timed;
  all.seconds += std::chrono::duration<double>(Clock::now() - start).count();
  if (!all.has_told) all.num_untold = static_cast<std::ptrdiff_t>(all.num_timed);
  if (all.has_told) keep_timed(all);
  return plan;
}

// Keeps what was timed, and logs how long that took, once as many known products have been enqueued
// as were timed, because then the first step is over.
void tell_after_first_step() {
  Table& all = table();
  if (all.num_untold.fetch_sub(1) != 1) return;
  const std::lock_guard lock(all.mutex);
  all.has_told = true;
  keep_timed(all);
  log_info("timed the algorithms of {} products in {:.2f} s", all.num_timed, all.seconds);
}

// Runs the first algorithm that runs. Returns false if none does.
bool run_any(Stream& stream, const Product& product, const ProductKey& key) {
  for (const Plan& plan : candidates(stream, product)) {
    Call call(product, plan);
    if (!launch_product(stream, product, call)) continue;
    const std::lock_guard lock(table().mutex);
    table().plans[key] = plan;
    return true;
  }
  return false;
}

// The product's key for all GPUs of the model.
ProductKey shared_key(Stream& stream, ProductKey key) {
  key[0] = model_of(cuda_stream(stream).gpu());
  return key;
}

// Returns false, with nothing enqueued, if the library runs no algorithm for the product.
bool try_run(Stream& stream, const Product& product) {
  const ProductKey own_key = key_of(stream, product);
  auto& calls = calls_of_thread();
  auto call = calls.find(own_key);
  if (call != calls.end()) {
    if (table().num_untold.load(std::memory_order_relaxed) > 0) tell_after_first_step();
    if (launch_product(stream, product, call->second)) return true;
  }
  const ProductKey key = shared_key(stream, own_key);
  // Asking the library for algorithms may break a capture.
  const auto require_no_capture = [&](const char* problem) {
    require(!cuda_stream(stream).is_capturing(), ErrorCode::State, product.operation,
            "the product [{}, {}] x {} {}; run the step once before capturing it", product.c.rows,
            product.c.cols, inner_size(product), problem);
  };
  if (call == calls.end()) {
    std::optional<Plan> plan = look_up(key);
    if (!plan) {
      require_no_capture("is new and cannot be captured");
      if (is_matmul_tuning_on()) plan = time_product(stream, product, key);
    }
    if (plan) {
      call = calls.try_emplace(own_key, product, *plan).first;
      if (launch_product(stream, product, call->second)) return true;
    }
  }
  require_no_capture("is refused by cuBLASLt and cannot be captured");
  calls.erase(own_key);
  return run_any(stream, product, key);
}

// Rounds the factors first. Returns false if the library runs no algorithm for such factors.
bool run_in_bfloat16(Stream& stream, const Product& product) {
  const Aligned a(stream, DType::bfloat16, product.a), b(stream, DType::bfloat16, product.b);
  Product rounded = product;
  rounded.a = a.view();
  rounded.b = b.view();
  Table& all = table();
  const auto key = [&] { return shared_key(stream, key_of(stream, rounded)); };
  if (all.num_missing.load(std::memory_order_relaxed) > 0) {
    const std::lock_guard lock(all.mutex);
    if (all.missing.contains(key())) return false;
  }
  if (try_run(stream, rounded)) return true;
  log_debug("cuBLASLt {} has no bfloat16 product {} [{}, {}] x {}: it is multiplied in float32",
            cublasLtGetVersion(), product.operation, product.c.rows, product.c.cols,
            inner_size(product));
  const std::lock_guard lock(all.mutex);
  all.missing.insert(key());
  all.num_missing = all.missing.size();
  return false;
}

// The product of float32 copies. Returns false if the library runs no algorithm for them either, or
// on another stream than the device's own, in whose order the copies' memory is used again.
bool run_in_float32(Stream& stream, const Product& product) {
  if (&stream != &stream.device().compute_stream()) return false;
  const Aligned a(stream, DType::float32, product.a), b(stream, DType::float32, product.b);
  const bool adds = product.write == Write::accumulate;
  const Aligned c(stream, DType::float32, product.c,
                  adds ? Aligned::Content::copied : Aligned::Content::none);
  Product wide = product;
  wide.a = a.view();
  wide.b = b.view();
  wide.bias = {};
  wide.activation = Activation::none;
  wide.preactivation = {};
  if (c.copy().data != nullptr) wide.c = c.copy();
  if (!try_run(stream, wide)) return false;
  if (c.copy().data != nullptr) convert_matrix(stream, wide.c, product.c);
  if (has_finish(product)) finish(stream, product);
  return true;
}

bool has_bfloat16(const Product& product) {
  return product.a.dtype == DType::bfloat16 || product.b.dtype == DType::bfloat16 ||
         product.c.dtype == DType::bfloat16;
}

// True for a product that is to have bfloat16 factors.
bool is_rounded(const Product& product) {
  return has_bfloat16(product) || (product.a.dtype == DType::float32 && takes_bfloat16());
}

}  // namespace

FactorType factor_type() {
  switch (matmul_precision()) {
    case MatmulPrecision::highest:
      return FactorType::float32;
    case MatmulPrecision::high:
      return FactorType::tf32;
    case MatmulPrecision::medium:
    case MatmulPrecision::bf16:
      return FactorType::bfloat16;
  }
  return FactorType::float32;
}

bool takes_bfloat16() {
  return matmul_precision() == MatmulPrecision::bf16;
}

void run(Stream& stream, const Product& product) {
  if (product.c.num_elements() == 0) return;
  if (inner_size(product) == 0) {  // a sum of nothing: the library is not needed
    if (product.write == Write::overwrite) zero_matrix(stream, product.c);
    if (has_finish(product)) finish(stream, product);
    return;
  }
  if (is_rounded(product) && run_in_bfloat16(stream, product)) return;
  if (has_bfloat16(product) ? run_in_float32(stream, product) : try_run(stream, product)) return;
  fail(ErrorCode::Cuda, product.operation,
       "cuBLASLt {} runs none of its algorithms for [{}, {}] x {} in {}; LOCKSTEP_LOG=debug says "
       "why",
       cublasLtGetVersion(), product.c.rows, product.c.cols, inner_size(product),
       to_string(product.c.dtype));
}

bool takes_no_memory(Stream& stream, const Product& product) {
  if (!is_rounded(product)) return true;
  const auto is_read_in_place = [](const ConstMatrixView& factor) {
    return factor.dtype == DType::bfloat16 && alignment_of(factor) == 16;
  };
  // A new one may turn out to be missing, and be made of float32 copies.
  return is_read_in_place(product.a) && is_read_in_place(product.b) &&
         calls_of_thread().contains(key_of(stream, product));
}

std::size_t num_timed_products() {
  const std::lock_guard lock(table().mutex);
  return table().num_timed;
}

void forget_products() {
  const std::lock_guard lock(table().mutex);
  table().plans.clear();
  table().missing.clear();
  table().num_missing = 0;
  table().read_models.clear();
  table().unkept.clear();
  table().has_told = false;
  table().num_timed = 0;
  table().num_untold = 0;
  ++table().num_cleared;
}

}  // namespace lockstep::kernels::cuda
