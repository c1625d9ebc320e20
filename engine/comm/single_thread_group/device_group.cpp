#include "engine/comm/single_thread_group/device_group.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/comm/reduce.h"
#include "engine/comm/single_thread_group/reduce_to_all.h"
#include "engine/core/error.h"
#include "engine/runtime/cuda_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/runtime/step_graph.h"

namespace lockstep::comm {
namespace {

// Parts of an all-reduce begin at multiples of this, so that kernels read whole vectors.
constexpr std::size_t kPartAlignment = 64;  // elements

using EventPtr = std::shared_ptr<runtime::Event>;

bool is_cuda(const runtime::Stream& stream) {
  return stream.device().device().type == DeviceType::cuda;
}

void scale_on_stream(runtime::Stream& stream, TensorView values, double factor) {
  if (factor == 1) return;
  const ConstTensorView source = values;
  reduce_on_stream(stream, ReduceOp::sum, factor, std::span(&source, 1), std::span(&values, 1));
}

// A rank as the enqueueing thread sees it.
struct GroupRank {
  runtime::Stream& stream;
  TensorView buffer;

  TensorView part(plan::Chunk chunk) const { return buffer.part(chunk.offset, chunk.count); }
};

// Runs a plan step by step. In a step the senders record events, the receivers wait for those and
// write, and the senders wait until the receivers have read.
class PlanRun {
 public:
  PlanRun(std::span<const GroupRank> ranks, ReduceOp op, std::span<DeviceScratch> scratch)
      : ranks_(ranks), op_(op), scratch_(scratch) {}

  void run(const plan::CollectivePlan& plan) {
    for (const plan::Step& step : plan.steps) run_step(step);
  }

 private:
  // A chunk that a rank both sends and overwrites in a step: it is copied before, and sent from the
  // copy.
  struct Staged {
    std::size_t rank;
    plan::Chunk chunk;
    std::size_t offset;  // in the rank's scratch, in elements
    TensorView copy{};
  };

  void run_step(const plan::Step& step) {
    writes_.clear();
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      writes_.push_back(plan::writes_of_rank(step, rank));
    }
    stage(step);
    std::set<std::pair<std::size_t, std::size_t>> pairs;  // receiver, sender
    std::vector<EventPtr> sent(ranks_.size());
    for (const plan::Transfer& transfer : step.transfers) {
      const auto from = static_cast<std::size_t>(transfer.from_rank);
      pairs.emplace(static_cast<std::size_t>(transfer.to_rank), from);
      if (sent[from] == nullptr) sent[from] = ranks_[from].stream.record();
    }
    for (const auto& [to, from] : pairs) ranks_[to].stream.wait(sent[from]);
    std::vector<EventPtr> received(ranks_.size());
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const plan::Write& write : writes_[rank]) run_write(write, rank);
      if (!writes_[rank].empty()) received[rank] = ranks_[rank].stream.record();
    }
    for (const auto& [to, from] : pairs) ranks_[from].stream.wait(received[to]);
  }

  void stage(const plan::Step& step) {
    staged_.clear();
    std::vector<std::size_t> room(ranks_.size());
    for (const plan::Transfer& transfer : step.transfers) {
      const auto rank = static_cast<std::size_t>(transfer.from_rank);
      const bool is_overwritten = std::ranges::any_of(writes_[rank], [&](const plan::Write& write) {
        return plan::overlaps(write.chunk, transfer.chunk);
      });
      if (!is_overwritten || find_staged(rank, transfer.chunk) != staged_.end()) continue;
      staged_.push_back({rank, transfer.chunk, room[rank]});
      room[rank] += aligned(transfer.chunk.count);
    }
    fetched_.assign(ranks_.size(), nullptr);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const std::size_t num_staged = room[rank];
      const std::size_t num_elements = num_staged + num_fetched(rank);
      if (num_elements == 0) continue;
      const std::size_t element_size = size_of(ranks_[rank].buffer.dtype);
      std::byte* memory = scratch_[rank].on(ranks_[rank].stream, num_elements * element_size);
      fetched_[rank] = memory + num_staged * element_size;
      for (Staged& staged : staged_) {
        if (staged.rank != rank) continue;
        const TensorView from = ranks_[rank].part(staged.chunk);
        staged.copy = {memory + staged.offset * element_size, from.dtype, from.num_elements};
        copy_on_stream(ranks_[rank].stream, from, staged.copy);
      }
    }
  }

  // A rank that cannot read a sender's memory fetches what it adds up: the most that one write
  // takes.
  std::size_t num_fetched(std::size_t rank) const {
    std::size_t most = 0;
    for (const plan::Write& write : writes_[rank]) {
      if (write.combine == plan::Combine::copy) continue;
      std::size_t num_unreachable = 0;
      for (const int from : write.from_ranks) num_unreachable += reads(rank, from) ? 0 : 1;
      most = std::max(most, num_unreachable * aligned(write.chunk.count));
    }
    return most;
  }

  void run_write(const plan::Write& write, std::size_t rank) {
    runtime::Stream& stream = ranks_[rank].stream;
    const TensorView to = ranks_[rank].part(write.chunk);
    if (write.combine == plan::Combine::copy) {
      copy_on_stream(stream, sent_by(write.from_ranks[0], write.chunk), to);
      return;
    }
    std::vector<int> summands = write.from_ranks;
    const int me = static_cast<int>(rank);
    summands.insert(std::ranges::lower_bound(summands, me), me);
    std::vector<ConstTensorView> sources;
    std::byte* fetched = fetched_[rank];
    for (const int from : summands) {
      TensorView source = from == me ? to : sent_by(from, write.chunk);
      if (!reads(rank, from)) {
        const TensorView local{fetched, to.dtype, to.num_elements};
        copy_on_stream(stream, source, local);
        fetched += aligned(to.num_elements) * size_of(to.dtype);
        source = local;
      }
      sources.push_back(source);
    }
    reduce_on_stream(stream, op_, 1.0, sources, std::span(&to, 1));
  }

  bool reads(std::size_t rank, int from) const {
    return reaches(ranks_[rank].stream.device(),
                   ranks_[static_cast<std::size_t>(from)].stream.device());
  }
  // Chunks in scratch memory begin aligned.
  static std::size_t aligned(std::size_t num_elements) { return (num_elements + 15) / 16 * 16; }

  std::vector<Staged>::const_iterator find_staged(std::size_t rank, plan::Chunk chunk) const {
    return std::ranges::find_if(staged_, [&](const Staged& staged) {
      return staged.rank == rank && staged.chunk == chunk;
    });
  }
  TensorView sent_by(int from, plan::Chunk chunk) const {
    const auto rank = static_cast<std::size_t>(from);
    const auto staged = find_staged(rank, chunk);
    return staged == staged_.end() ? ranks_[rank].part(chunk) : staged->copy;
  }

  std::span<const GroupRank> ranks_;
  ReduceOp op_;
  std::span<DeviceScratch> scratch_;  // by rank
  // The current step.
  std::vector<std::vector<plan::Write>> writes_;  // by rank
  std::vector<Staged> staged_;
  std::vector<std::byte*> fetched_;  // by rank: where it puts what it cannot read
};

void run_plan(const CallHeader& call, std::span<const GroupRank> ranks,
              std::span<DeviceScratch> scratch) {
  PlanRun(ranks, call.op, scratch)
      .run(plan_of(call, static_cast<int>(ranks.size()), {}, ranks[0].buffer.num_elements));
}

// CUDA's answer for each pair of GPUs, asked once.
class PeerTable {
 public:
  PeerTable() : num_gpus_(runtime::physical_gpus().size()) {
    for (const runtime::PhysicalGpu& from : runtime::physical_gpus()) {
      for (const runtime::PhysicalGpu& to : runtime::physical_gpus()) {
        table_.push_back(runtime::has_peer_access(from.ordinal, to.ordinal));
      }
    }
  }
  bool has_access(int from, int to) const {
    return table_[static_cast<std::size_t>(from) * num_gpus_ + static_cast<std::size_t>(to)];
  }

 private:
  std::size_t num_gpus_;
  std::vector<bool> table_;
};

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
  const EventPtr event = members[from].stream->record();
  for (const std::size_t member : to) {
    if (members[member].stream != members[from].stream) members[member].stream->wait(event);
  }
}

}  // namespace

bool reaches(const runtime::LogicalDevice& reader, const runtime::LogicalDevice& owner) {
  if (reader.gpu() == owner.gpu()) return true;
  static const PeerTable table;
  return table.has_access(reader.gpu(), owner.gpu());
}

void copy_on_stream(runtime::Stream& stream, ConstTensorView from, TensorView to) {
  if (to.num_elements == 0 || to.data == from.data) return;
  if (is_cuda(stream)) {
    runtime::copy_on_cuda_stream(stream, to.data, from.data, to.num_bytes());
  } else {
    kernels::backend(DeviceType::cpu).copy(stream, from, to);
  }
}

void reduce_on_stream(runtime::Stream& stream, ReduceOp op, double factor,
                      std::span<const ConstTensorView> sources,
                      std::span<const TensorView> outputs) {
  if (is_cuda(stream)) {
    reduce_to_all(stream, op, factor, sources, outputs);
    return;
  }
  reduce_in_order(stream, op, factor, sources, outputs[0]);
  for (const TensorView& other : outputs.subspan(1)) copy_on_stream(stream, outputs[0], other);
}

std::byte* DeviceScratch::on(runtime::Stream& stream, std::size_t num_bytes) {
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
  require(members.size() <= kMaxReducedRanks, ErrorCode::Usage, name_of(call.operation),
          "takes at most {} ranks on devices of one process, found {}", kMaxReducedRanks,
          members.size());
  scratch_.resize(members.size());
  inputs_.resize(members.size());
  switch (call.operation) {
    case Operation::all_reduce:
      return all_reduce(call, members);
    case Operation::all_gather:
      return all_gather(call, members);
    case Operation::reduce_scatter:
      return reduce_scatter(call, members);
    default:
      return run_plan(call, ranks_of(members, &GroupMember::input), scratch_);
  }
}

void DeviceGroup::all_reduce(const CallHeader& call, std::span<const GroupMember> members) {
  if (members.size() == 1) return;
  const double factor = factor_of(call.op, static_cast<int>(members.size()));
  const bool is_two_shot =
      call.plan == plan::AllReducePlan::automatic || call.plan == plan::AllReducePlan::two_shot;
  if (is_two_shot && all_reach_each_other(members)) {
    reduce_to_all_members(members, call.op, factor);
    return;
  }
  for (const GroupMember& member : members) {
    scale_on_stream(*member.stream, member.input.view(), factor);
  }
  CallHeader settled = call;
  if (is_two_shot) settled.plan = plan::AllReducePlan::two_shot;
  run_plan(settled, ranks_of(members, &GroupMember::input), scratch_);
}

void DeviceGroup::reduce_to_all_members(std::span<const GroupMember> members, ReduceOp op,
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
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const GroupMember& member = members[rank];
    const std::size_t num_elements = call.num_elements;
    copy_on_stream(*member.stream, member.input.view(),
                   member.output.view().part(rank * num_elements, num_elements));
  }
  run_plan(call, ranks_of(members, &GroupMember::output), scratch_);
}

void DeviceGroup::reduce_scatter(const CallHeader& call, std::span<const GroupMember> members) {
  const double factor = factor_of(call.op, static_cast<int>(members.size()));
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
  run_plan(call, ranks, scratch_);
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const TensorView output = members[rank].output.view();
    copy_on_stream(*members[rank].stream,
                   ranks[rank].buffer.part(rank * output.num_elements, output.num_elements),
                   output);
  }
}

}  // namespace lockstep::comm
