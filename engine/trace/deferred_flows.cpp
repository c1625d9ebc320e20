#include "engine/trace/deferred_flows.h"

#include <utility>

#include "engine/trace/span.h"

namespace lockstep::trace {
namespace {

std::vector<std::uint64_t>& deferred() {
  thread_local std::vector<std::uint64_t> flows;
  return flows;
}

}  // namespace

void defer_flow(std::uint64_t flow) {
  if (!recording()) return;
  std::vector<std::uint64_t>& flows = deferred();
  if (flows.size() == kMaxDeferredFlows) flows.erase(flows.begin());
  flows.push_back(flow);
}

std::vector<std::uint64_t> take_deferred_flows() {
  return std::exchange(deferred(), {});
}

}  // namespace lockstep::trace
