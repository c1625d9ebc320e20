#include "engine/comm/collective_call.h"

#include <fmt/format.h>

#include <array>

#include "engine/core/error.h"
#include "engine/plan/all_reduce_plan.h"

namespace lockstep::comm {
namespace {

std::string with_plan(const CallHeader& header) {
  return fmt::format("{} by the {} plan", to_string(header), plan::to_string(header.plan));
}

std::string with_device(const CallHeader& header) {
  return fmt::format("{} on {}", to_string(header), lockstep::to_string(header.device));
}

}  // namespace

const char* name_of(Operation operation) {
  static constexpr std::array names{"nothing",        "all_reduce", "broadcast", "all_gather",
                                    "reduce_scatter", "barrier",    "send",      "recv"};
  return names[static_cast<std::size_t>(operation)];
}

std::string_view to_string(ReduceOp op) {
  constexpr std::array<std::string_view, 5> names{"sum", "average", "product", "min", "max"};
  return names[static_cast<std::size_t>(op)];
}

bool same_call(const CallHeader& a, const CallHeader& b) {
  return a.sequence == b.sequence && a.operation == b.operation &&
         a.num_elements == b.num_elements && a.dtype == b.dtype && a.device == b.device &&
         a.op == b.op && a.plan == b.plan && a.root == b.root;
}

std::string to_string(const CallHeader& header) {
  if (header.operation == Operation::none) return "nothing";
  std::string text = fmt::format("{} #{}", name_of(header.operation), header.sequence);
  if (header.operation == Operation::barrier) return text;
  text += fmt::format(" of {} {}", header.num_elements, lockstep::to_string(header.dtype));
  if (is_reduction(header.operation)) text += fmt::format(" ({})", to_string(header.op));
  if (header.root >= 0) text += fmt::format(" from rank {}", header.root);
  return text;
}

std::string describe_difference(int rank, const CallHeader& call, int other_rank,
                                const CallHeader& other_call) {
  std::string (*describe)(const CallHeader&) = to_string;
  if (to_string(call) == to_string(other_call) || is_point_to_point(call.operation)) {
    if (call.device != other_call.device) describe = with_device;
    if (call.plan != other_call.plan) describe = with_plan;
  }
  return fmt::format("rank {} called {} while rank {} called {}", rank, describe(call), other_rank,
                     describe(other_call));
}

plan::CollectivePlan plan_of(const CallHeader& header, int world_size, std::span<const int> hosts,
                             std::size_t num_elements) {
  switch (header.operation) {
    case Operation::all_reduce:
      return hosts.empty() ? plan::all_reduce_plan(header.plan, world_size, num_elements)
                           : plan::all_reduce_plan(header.plan, hosts, num_elements);
    case Operation::broadcast:
      return plan::broadcast_plan(world_size, num_elements, header.root);
    case Operation::all_gather:
      return plan::all_gather_plan(world_size, num_elements);
    case Operation::reduce_scatter:
      return plan::reduce_scatter_plan(world_size, num_elements);
    default:
      fail(ErrorCode::State, name_of(header.operation), "has no plan");
  }
}

std::size_t least_bytes_sent(const CallHeader& header, int rank, int world_size) {
  const std::size_t num_bytes = header.num_elements * size_of(header.dtype);
  const auto others = static_cast<std::size_t>(world_size - 1);
  switch (header.operation) {
    case Operation::all_reduce:
      return 2 * num_bytes / static_cast<std::size_t>(world_size) * others;
    case Operation::reduce_scatter:
      return num_bytes / static_cast<std::size_t>(world_size) * others;
    case Operation::all_gather:
      return num_bytes * others;
    case Operation::broadcast:
      return header.root == rank ? num_bytes : 0;
    default:
      return 0;
  }
}

}  // namespace lockstep::comm
