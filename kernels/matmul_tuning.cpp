#include "kernels/matmul_tuning.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "engine/core/error.h"

namespace lockstep::kernels {
namespace {

std::atomic<int> num_scopes{0};

bool is_on_by_environment() {
  const char* text = std::getenv("LOCKSTEP_TUNING");
  const std::string_view word = text ? text : "";
  require(word.empty() || word == "on" || word == "off", ErrorCode::Usage, "LOCKSTEP_TUNING",
          "is '{}'; use on or off", word);
  return word != "off";
}

}  // namespace

bool is_matmul_tuning_on() {
  static const bool by_environment = is_on_by_environment();
  return by_environment && num_scopes.load(std::memory_order_relaxed) == 0;
}

UntunedScope::UntunedScope() {
  num_scopes.fetch_add(1, std::memory_order_relaxed);
}

UntunedScope::~UntunedScope() {
  num_scopes.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace lockstep::kernels
