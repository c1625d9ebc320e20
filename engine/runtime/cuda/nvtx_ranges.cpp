#include "engine/runtime/cuda/nvtx_ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <cstdlib>
#include <string_view>

#include "engine/trace/span.h"

namespace lockstep::runtime::cuda {
namespace {

bool is_wanted() {
  const char* asked = std::getenv("LOCKSTEP_NVTX");
  if (asked != nullptr) return std::string_view(asked) == "1";
  return std::getenv("NVTX_INJECTION64_PATH") != nullptr;
}

}  // namespace

void enable_nvtx_ranges() {
  static const bool enabled = [] {
    if (!is_wanted()) return false;
    trace::set_range_hooks(
        {[](const char* name) { nvtxRangePushA(name); }, [] { nvtxRangePop(); }});
    return true;
  }();
  static_cast<void>(enabled);
}

}  // namespace lockstep::runtime::cuda
