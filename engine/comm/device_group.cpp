#include "engine/comm/device_group.h"

#include <algorithm>
#include <utility>

#include "engine/comm/reduce.h"
#include "engine/core/error.h"
#include "engine/runtime/cuda_device.h"
#include "engine/trace/span.h"

namespace lockstep::comm {
namespace {

// Parts of an all-reduce begin at multiples of this, so that kernels read whole vectors.
constexpr std::size_t kPartAlignment = 64;  // elements

// Memory on a rank's device for one collective. It comes from the pool whose blocks wait only for
// the streams that used them; a captured graph keeps it as long as it lives.
class Scratch {
 public:
  std::byte* on(runtime::Stream& stream, std::size_t num_bytes) {
    if (num_bytes_ < num_bytes) {
      runtime::LogicalDevice& device = stream.device();
      memory_ = std::make_unique<runtime::Storage>(device, num_bytes, device.copy_pool());
      memory_->record_use(stream);
      num_bytes_ = num_bytes;
    }
    return static_cast<std::byte*>(memory_->data());
  }

 private:
  std::unique_ptr<runtime::Storage> memory_;
  std::size_t num_bytes_ = 0;
};

// A rank as the enqueueing thread sees it.
struct GroupRank {
  runtime::Stream* stream;
  TensorView buffer;

  TensorView at(plan::Chunk chunk) const { return buffer.slice(chunk.offset, chunk.count); }
};

// All work that a rank's stream gets after this follows all work that any of them holds now.
template <typename Rank>
void meet(std::span<const Rank> ranks) {
  runtime::Stream* const first = ranks[0].stream;
  for (const Rank& rank : ranks) {
    if (rank.stream != first) first->wait(rank.stream->record());
  }
  const std::shared_ptr<runtime::Event> all = first->record();
  for (const Rank& rank : ranks) {
    if (rank.stream != first) rank.stream->wait(all);
  }
}

// Runs a plan step by step. In a step, each rank fetches what others send it: a chunk that replaces
// its own is copied into place, a summand into its scratch memory. When all have done so, each
// adds. So a rank may add to a chunk in the step in which it sends it.
class PlanRun {
 public:
  PlanRun(std::span<const GroupRank> ranks, ReduceOp op)
      : ranks_(ranks), op_(op), scratch_(ranks.size()) {}

  void run(const plan::CollectivePlan& plan) {
    for (const plan::Step& step : plan.steps) run_step(step);
  }

 private:
  void run_step(const plan::Step& step) {
    std::vector<std::vector<plan::Receive>> receives;
    std::vector<std::vector<ConstTensorView>> summands;
    meet(ranks_);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      receives.push_back(plan::receives_of_rank(step, static_cast<int>(rank)));
      summands.push_back(fetch(rank, receives[rank]));
    }
    meet(ranks_);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      add(rank, receives[rank], summands[rank]);
    }
  }

  // Copies the chunks that others send to a rank. Returns the summands, in the order of the writes.
  std::vector<ConstTensorView> fetch(std::size_t rank, std::span<const plan::Receive> receives) {
    const GroupRank& me = ranks_[rank];
    const std::size_t element_size = size_of(me.buffer.dtype);
    std::size_t num_elements = 0;
    for (const plan::Receive& receive : receives) {
      if (receive.combine == plan::Combine::copy) continue;
      num_elements += receive.from_ranks.size() * aligned(receive.chunk.count);
    }
    std::byte* memory = nullptr;
    if (num_elements > 0) memory = scratch_[rank].on(*me.stream, num_elements * element_size);
    std::vector<ConstTensorView> summands;
    for (const plan::Receive& receive : receives) {
      for (const int from : receive.from_ranks) {
        const TensorView source = ranks_[static_cast<std::size_t>(from)].at(receive.chunk);
        if (receive.combine == plan::Combine::copy) {
          copy_on_stream(*me.stream, source, me.at(receive.chunk));
          continue;
        }
        const TensorView local{memory, source.dtype, source.num_elements};
        copy_on_stream(*me.stream, source, local);
        summands.push_back(local);
        memory += aligned(source.num_elements) * element_size;
      }
    }
    return summands;
  }

  // Adds in the order of ranks, the rank's own values among them.
  void add(std::size_t rank, std::span<const plan::Receive> receives,
           std::span<const ConstTensorView> summands) {
    for (const plan::Receive& receive : receives) {
      if (receive.combine == plan::Combine::copy) continue;
      const std::size_t count = receive.from_ranks.size();
      std::vector<ConstTensorView> sources(summands.begin(),
                                           summands.begin() + static_cast<std::ptrdiff_t>(count));
      summands = summands.subspan(count);
      const TensorView mine = ranks_[rank].at(receive.chunk);
      const auto place = std::ranges::lower_bound(receive.from_ranks, static_cast<int>(rank));
      sources.insert(sources.begin() + (place - receive.from_ranks.begin()), mine);
      reduce(*ranks_[rank].stream, {sources, 1.0, mine, op_});
    }
  }

  // Chunks in scratch memory begin aligned.
  static std::size_t aligned(std::size_t num_elements) { return (num_elements + 15) / 16 * 16; }

  std::span<const GroupRank> ranks_;
  ReduceOp op_;
  std::vector<Scratch> scratch_;  // indexed by rank
};

void run_plan(const CallHeader& call, std::span<const GroupRank> ranks) {
  PlanRun(ranks, call.op)
      .run(plan_of(call, static_cast<int>(ranks.size()), {}, ranks[0].buffer.num_elements));
}

std::vector<GroupRank> ranks_of(std::span<const GroupMember> members, Tensor GroupMember::*buffer) {
  std::vector<GroupRank> ranks;
  for (const GroupMember& member : members) {
    ranks.push_back({member.stream, (member.*buffer).view()});
  }
  return ranks;
}

// The first member of every GPU, in the order of ranks; only the first member if there is no GPU.
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
      return runtime::reaches(reader.stream->device(), owner.stream->device());
    });
  });
}

void reduce_to_all_members(std::span<const GroupMember> members, ReduceOp op, double factor) {
  const std::vector<std::size_t> owners = owners_of(members);
  const std::size_t num_elements = members[0].input.num_elements();
  const std::size_t num_blocks = (num_elements + kPartAlignment - 1) / kPartAlignment;
  meet(members);
  std::vector<ConstTensorView> sources(members.size());
  std::vector<TensorView> outputs(members.size());
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const plan::Chunk blocks = plan::even_chunk(num_blocks, owners.size(), i);
    const std::size_t begin = std::min(blocks.offset * kPartAlignment, num_elements);
    const std::size_t end = std::min(blocks.end() * kPartAlignment, num_elements);
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      outputs[rank] = members[rank].input.view().slice(begin, end - begin);
      sources[rank] = outputs[rank];
    }
    reduce(*members[owners[i]].stream,
           {sources, factor, outputs[0], op, std::span(outputs).subspan(1)});
  }
  meet(members);
}

void all_reduce(const CallHeader& call, std::span<const GroupMember> members) {
  if (members.size() == 1) return;
  const double factor = factor_of(call.op, static_cast<int>(members.size()));
  const bool is_two_shot =
      call.plan == plan::AllReducePlan::automatic || call.plan == plan::AllReducePlan::two_shot;
  if (is_two_shot && all_reach_each_other(members)) {
    reduce_to_all_members(members, call.op, factor);
    return;
  }
  for (const GroupMember& member : members) {
    multiply(*member.stream, factor, member.input.view());
  }
  CallHeader settled = call;
  if (is_two_shot) settled.plan = plan::AllReducePlan::two_shot;
  run_plan(settled, ranks_of(members, &GroupMember::input));
}

void all_gather(const CallHeader& call, std::span<const GroupMember> members) {
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const GroupMember& member = members[rank];
    const std::size_t num_elements = call.num_elements;
    copy_on_stream(*member.stream, member.input.view(),
                   member.output.view().slice(rank * num_elements, num_elements));
  }
  run_plan(call, ranks_of(members, &GroupMember::output));
}

void reduce_scatter(const CallHeader& call, std::span<const GroupMember> members) {
  const double factor = factor_of(call.op, static_cast<int>(members.size()));
  std::vector<Scratch> copies(members.size());
  std::vector<GroupRank> ranks;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const GroupMember& member = members[rank];
    const ConstTensorView input = member.input.view();
    std::byte* memory = nullptr;
    if (input.num_elements > 0) memory = copies[rank].on(*member.stream, input.num_bytes());
    const TensorView copy{memory, input.dtype, input.num_elements};
    copy_on_stream(*member.stream, input, copy);
    multiply(*member.stream, factor, copy);
    ranks.push_back({member.stream, copy});
  }
  run_plan(call, ranks);
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const TensorView output = members[rank].output.view();
    copy_on_stream(*members[rank].stream,
                   ranks[rank].buffer.slice(rank * output.num_elements, output.num_elements),
                   output);
  }
}

}  // namespace

void copy_on_stream(runtime::Stream& stream, ConstTensorView from, TensorView to) {
  if (to.num_elements == 0 || to.data == from.data) return;
  if (stream.device().device().type == DeviceType::cuda) {
    runtime::copy_on_cuda_stream(stream, to.data, from.data, to.num_bytes());
  } else {
    kernels::backend(DeviceType::cpu).copy(stream, {from, to});
  }
}

void enqueue_collective(const CallHeader& call, std::span<const GroupMember> members) {
  require(members.size() <= kernels::kMostReduced, ErrorCode::Usage, name_of(call.operation),
          "takes at most {} ranks on devices of one process, found {}", kernels::kMostReduced,
          members.size());
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

Work SingleThreadGroup::all_reduce(std::span<const Tensor> buffers,
                                   const CollectiveOptions& options, StartEvents start) {
  require_reducible(Operation::all_reduce, buffers[0].dtype(), options.op);
  CallHeader call;
  call.operation = Operation::all_reduce;
  call.op = options.op;
  call.plan = options.plan;
  return submit(call, buffers, options.launch, start);
}

Work SingleThreadGroup::broadcast(std::span<const Tensor> buffers, int root, Launch launch) {
  CallHeader call;
  call.operation = Operation::broadcast;
  call.root = root;
  return submit(call, buffers, launch, {});
}

Work SingleThreadGroup::submit(CallHeader call, std::span<const Tensor> buffers, Launch launch,
                               StartEvents start) {
  call.num_elements = buffers[0].num_elements();
  call.dtype = buffers[0].dtype();
  call.device = buffers[0].device().type;
  trace::ScopedSpan span(trace::Lane::comm, trace::Category::communication, name_of(call.operation),
                         buffers[0].num_bytes());
  if (call.device == DeviceType::cpu) launch = Launch::blocking;
  orders_.resize(buffers.size());
  std::vector<GroupMember> members;
  for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
    runtime::Stream& stream =
        orders_[rank].place(buffers[rank], {}, launch, start.empty() ? nullptr : start[rank]);
    buffers[rank].bump_version();
    members.push_back({&stream, buffers[rank], {}});
  }
  enqueue_collective(call, members);
  if (launch == Launch::blocking) return {};
  std::vector<StreamPoint> points;
  for (const GroupMember& member : members) {
    points.push_back({member.stream->record(), &member.stream->device().compute_stream()});
  }
  return Work(std::make_shared<EnqueuedWork>(std::move(points)));
}

}  // namespace lockstep::comm
