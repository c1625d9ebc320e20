#include "kernels/matmul_precision.h"

#include <atomic>
#include <cstdlib>

#include "engine/core/error.h"

namespace lockstep::kernels {
namespace {

std::atomic<MatmulPrecision> current{MatmulPrecision::highest};
std::atomic<int> num_untuned_scopes{0};

bool is_tuning_switched_on() {
  const char* text = std::getenv("LOCKSTEP_TUNING");
  const std::string_view word = text ? text : "";
  require(word.empty() || word == "on" || word == "off", ErrorCode::Usage, "LOCKSTEP_TUNING",
          "is '{}'; use on or off", word);
  return word != "off";
}

}  // namespace

void set_matmul_precision(MatmulPrecision precision) {
  current.store(precision, std::memory_order_relaxed);
}

MatmulPrecision matmul_precision() {
  return current.load(std::memory_order_relaxed);
}

std::string_view to_string(MatmulPrecision precision) {
  switch (precision) {
    case MatmulPrecision::highest:
      return "highest";
    case MatmulPrecision::high:
      return "high";
    case MatmulPrecision::medium:
      return "medium";
  }
  return "unknown";
}

MatmulPrecision parse_matmul_precision(std::string_view word) {
  for (const MatmulPrecision precision :
       {MatmulPrecision::highest, MatmulPrecision::high, MatmulPrecision::medium}) {
    if (word == to_string(precision)) return precision;
  }
  fail(ErrorCode::Usage, "matmul precision",
       "'{}' is none; use highest (float32), high (TF32) or medium (bfloat16)", word);
}

bool is_matmul_tuning_on() {
  static const bool by_environment = is_tuning_switched_on();
  return by_environment && num_untuned_scopes.load(std::memory_order_relaxed) == 0;
}

UntunedScope::UntunedScope() {
  num_untuned_scopes.fetch_add(1, std::memory_order_relaxed);
}

UntunedScope::~UntunedScope() {
  num_untuned_scopes.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace lockstep::kernels
