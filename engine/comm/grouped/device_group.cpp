#include "engine/comm/grouped/device_group.h"

#include <algorithm>

#include "engine/comm/grouped/enqueue_order.h"
#include "engine/comm/reduce.h"
#include "engine/comm/transport/cuda_peer/cuda_peer.h"
#include "engine/core/error.h"
#include "engine/runtime/step_graph.h"

namespace lockstep::comm {
namespace {

// Parts of a direct all-reduce begin at multiples of this, so that kernels read whole vectors.
constexpr std::size_t kPartAlignment = 64;  // elements

double factor_of(ReduceOp op, std::span<const GroupMember> members) {
  return comm::factor_of(op, static_cast<int>(members.size()));
}

void scale_on_stream(runtime::Stream& stream, TensorView values, double factor) {
  if (factor == 1) return;
  const ConstTensorView source = values;
  reduce_on_stream(stream, ReduceOp::sum, factor, std::span(&source, 1), std::span(&values, 1));
}

std::vector<GroupRank> ranks_of(std::span<const GroupMember> members, Tensor GroupMember::*buffer) {
  std::vector<GroupRank> ranks;
  for (const GroupMember& member : members) {
    ranks.push_back({*member.stream, (member.*buffer).view()});
  }
  return ranks;
}

// The first member of every GPU, in the order of ranks; just the first where there is no GPU.
std::vector<std::size_t> owners_of(std::span<const GroupMember> members) {
  std::vector<std::size_t> owners;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const int gpu = members[rank].stream->device().gpu();
    const bool is_first = std::ranges::none_of(
        owners, [&](std::size_t owner) { return members[owner].stream->device().gpu() == gpu; });
    if (is_first) owners.push_back(rank);
  }
  return owners;
}

bool all_reach_each_other(std::span<const GroupMember> members) {
  return std::ranges::all_of(members, [&](const GroupMember& reader) {
    return std::ranges::all_of(members, [&](const GroupMember& owner) {
      return reaches(reader.stream->device(), owner.stream->device());
    });
  });
}

// The stream of member `to` waits for what those of `from` hold.
void wait_for_members(std::span<const GroupMember> members, std::size_t to,
                      std::span<const std::size_t> from) {
  for (const std::size_t member : from) {
    if (members[member].stream != members[to].stream) {
      members[to].stream->wait(members[member].stream->record());
    }
  }
}

// The streams of members `to` wait for what that of `from` holds.
void let_members_wait(std::span<const GroupMember> members, std::size_t from,
                      std::span<const std::size_t> to) {
  if (to.size() == 1 && to[0] == from) return;
  const std::shared_ptr<runtime::Event> event = members[from].stream->record();
  for (const std::size_t member : to) {
    if (members[member].stream != members[from].stream) members[member].stream->wait(event);
  }
}

}  // namespace

std::byte* DeviceGroup::Scratch::on(runtime::Stream& stream, std::size_t num_bytes) {
  runtime::LogicalDevice& device = stream.device();
  if (memory_ == nullptr || &memory_->device() != &device || num_bytes_ < num_bytes) {
    if (is_in_graph_) kept_.push_back(std::move(memory_));
    is_in_graph_ = false;
    memory_ = std::make_shared<runtime::Storage>(device, num_bytes);
    num_bytes_ = num_bytes;
    memory_->record_use(device.comm_stream());
    // The pool gives out what earlier work of the compute stream may still use.
    if (&stream != &device.compute_stream()) stream.wait(device.compute_stream().record());
  }
  is_in_graph_ = is_in_graph_ || runtime::is_capturing_step();
  return static_cast<std::byte*>(memory_->data());
}

void DeviceGroup::enqueue(const CallHeader& call, std::span<const GroupMember> members) {
  require(members.size() <= cuda_peer::kMaxRanks, ErrorCode::Usage, name_of(call.operation),
          "takes at most {} ranks on devices of one process, found {}", cuda_peer::kMaxRanks,
          members.size());
  staging_.resize(members.size());
  inputs_.resize(members.size());
  std::unique_lock<std::mutex> order;
  if (call.device == DeviceType::cuda) order = hold_enqueue_order();
  switch (call.operation) {
    case Operation::all_reduce:
      return all_reduce(call, members);
    case Operation::all_gather:
      return all_gather(call, members);
    case Operation::reduce_scatter:
      return reduce_scatter(call, members);
    default:
      return run_plan(call, ranks_of(members, &GroupMember::input));
  }
}

void DeviceGroup::all_reduce(const CallHeader& call, std::span<const GroupMember> members) {
  if (members.size() == 1) return;
  const double factor = factor_of(call.op, members);
  if (all_reduce_by_flags(call, members, factor)) return;
  const bool is_direct =
      call.plan == plan::AllReducePlan::automatic || call.plan == plan::AllReducePlan::two_shot;
  if (is_direct && all_reach_each_other(members)) {
    all_reduce_directly(members, call.op, factor);
    return;
  }
  for (const GroupMember& member : members) {
    scale_on_stream(*member.stream, member.input.view(), factor);
  }
  CallHeader settled = call;
  if (is_direct) settled.plan = plan::AllReducePlan::two_shot;
  run_plan(settled, ranks_of(members, &GroupMember::input));
}

bool DeviceGroup::all_reduce_by_flags(const CallHeader& call, std::span<const GroupMember> members,
                                      double factor) {
  const bool has_kernel = call.plan == plan::AllReducePlan::automatic ||
                          call.plan == plan::AllReducePlan::one_shot ||
                          call.plan == plan::AllReducePlan::two_shot;
  if (!has_kernel || call.device != DeviceType::cuda) return false;
  std::vector<runtime::Stream*> streams;
  std::vector<TensorView> buffers;
  for (const GroupMember& member : members) {
    streams.push_back(member.stream);
    buffers.push_back(member.input.view());
  }
  if (!flags_.serves(streams) || !all_reach_each_other(members)) return false;
  flags_.enqueue(call.plan, call.op, factor, streams, buffers);
  return true;
}

void DeviceGroup::all_reduce_directly(std::span<const GroupMember> members, ReduceOp op,
                                      double factor) {
  std::vector<std::size_t> all(members.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) all[rank] = rank;
  const std::vector<std::size_t> owners = owners_of(members);
  const std::size_t num_elements = members[0].input.num_elements();
  const std::size_t num_blocks = (num_elements + kPartAlignment - 1) / kPartAlignment;
  wait_for_members(members, 0, all);
  let_members_wait(members, 0, owners);
  std::vector<ConstTensorView> sources(members.size());
  std::vector<TensorView> outputs(members.size());
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const plan::Chunk blocks = plan::even_chunk(num_blocks, owners.size(), i);
    const std::size_t begin = std::min(blocks.offset * kPartAlignment, num_elements);
    const std::size_t end = std::min(blocks.end() * kPartAlignment, num_elements);
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      outputs[rank] = members[rank].input.view().part(begin, end - begin);
      sources[rank] = outputs[rank];
    }
    reduce_on_stream(*members[owners[i]].stream, op, factor, sources, outputs);
  }
  wait_for_members(members, 0, owners);
  let_members_wait(members, 0, all);
}

void DeviceGroup::all_gather(const CallHeader& call, std::span<const GroupMember> members) {
  const std::size_t num_elements = call.num_elements;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const GroupMember& member = members[rank];
    copy_on_stream(*member.stream, member.input.view(),
                   member.output.view().part(rank * num_elements, num_elements));
  }
  run_plan(call, ranks_of(members, &GroupMember::output));
}

void DeviceGroup::reduce_scatter(const CallHeader& call, std::span<const GroupMember> members) {
  const double factor = factor_of(call.op, members);
  std::vector<GroupRank> ranks;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const GroupMember& member = members[rank];
    const ConstTensorView input = member.input.view();
    std::byte* memory = nullptr;
    if (input.num_elements > 0) memory = inputs_[rank].on(*member.stream, input.num_bytes());
    const TensorView copy{memory, input.dtype, input.num_elements};
    copy_on_stream(*member.stream, input, copy);
    scale_on_stream(*member.stream, copy, factor);
    ranks.push_back({*member.stream, copy});
  }
  run_plan(call, ranks);
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const TensorView output = members[rank].output.view();
    copy_on_stream(*members[rank].stream,
                   ranks[rank].buffer.part(rank * output.num_elements, output.num_elements),
                   output);
  }
}

void DeviceGroup::run_plan(const CallHeader& call, std::span<const GroupRank> ranks) {
  const std::size_t num_elements = ranks[0].buffer.num_elements;
  const std::vector<RankProgram>& programs = programs_.find_or_make(call, num_elements, [&] {
    return rank_programs(plan_of(call, static_cast<int>(ranks.size()), {}, num_elements));
  });
  enqueue_programs(programs, ranks, call.op, [&](std::size_t rank, std::size_t num_bytes) {
    return staging_[rank].on(ranks[rank].stream, num_bytes);
  });
}

}  // namespace lockstep::comm
