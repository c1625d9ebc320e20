#include "tests/emulated_gpu/cublas_lt/control.h"

#include <map>
#include <mutex>
#include <utility>

namespace emulated_gpu::cublas_lt {
namespace {

struct Refusals {
  std::mutex mutex;
  std::map<std::pair<Refused, std::int64_t>, cublasStatus_t> statuses;
};

Refusals& refusals() {
  static Refusals& instance = *new Refusals;
  return instance;
}

}  // namespace

void refuse(Refused what, std::int64_t number, cublasStatus_t status) {
  const std::lock_guard lock(refusals().mutex);
  refusals().statuses[{what, number}] = status;
}

void refuse_nothing() {
  const std::lock_guard lock(refusals().mutex);
  refusals().statuses.clear();
}

cublasStatus_t refusal_of(Refused what, std::int64_t number) {
  const std::lock_guard lock(refusals().mutex);
  const auto found = refusals().statuses.find({what, number});
  return found == refusals().statuses.end() ? CUBLAS_STATUS_SUCCESS : found->second;
}

}  // namespace emulated_gpu::cublas_lt
