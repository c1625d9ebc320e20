#include "kernels/matmul_tuning.h"

#include <atomic>

#include "kernels/environment_switch.h"

namespace lockstep::kernels {
namespace {

std::atomic<int> num_scopes{0};

}  // namespace

bool is_matmul_tuning_on() {
  static const bool by_environment = is_switched_on("LOCKSTEP_TUNING");
  return by_environment && num_scopes.load(std::memory_order_relaxed) == 0;
}

UntunedScope::UntunedScope() {
  num_scopes.fetch_add(1, std::memory_order_relaxed);
}

UntunedScope::~UntunedScope() {
  num_scopes.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace lockstep::kernels
