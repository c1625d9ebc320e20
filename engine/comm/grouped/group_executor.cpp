#include "engine/comm/grouped/group_executor.h"

#include "engine/comm/reduce.h"
#include "engine/comm/transport/cuda_peer/cuda_peer.h"
#include "engine/runtime/cuda_device.h"
#include "engine/runtime/physical_gpus.h"

namespace lockstep::comm {
namespace {

bool is_cuda(const runtime::Stream& stream) {
  return stream.device().device().type == DeviceType::cuda;
}

// What CUDA says about each pair of GPUs, asked once.
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

const PeerTable& peer_table() {
  static const PeerTable table;
  return table;
}

TensorView part_of(TensorView buffer, plan::Chunk chunk) {
  return {static_cast<std::byte*>(buffer.data) + chunk.offset * size_of(buffer.dtype), buffer.dtype,
          chunk.count};
}

}  // namespace

bool reaches(const runtime::LogicalDevice& reader, const runtime::LogicalDevice& owner) {
  return reader.gpu() == owner.gpu() || peer_table().has_access(reader.gpu(), owner.gpu());
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
    cuda_peer::reduce_to_all(stream, op, factor, sources, outputs);
    return;
  }
  reduce_in_order(stream, op, factor, sources, outputs[0]);
  for (const TensorView& other : outputs.subspan(1)) copy_on_stream(stream, outputs[0], other);
}

void GroupExecutor::run(
    const GroupProgram& program, std::span<const GroupRank> ranks, ReduceOp op,
    const std::function<std::byte*(std::size_t rank, std::size_t num_bytes)>& staging) {
  const std::size_t element_size = size_of(ranks[0].buffer.dtype);
  Call call{ranks, op, {}, {}};
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    bool fetches = false;
    for (const GroupRank& owner : ranks) {
      fetches = fetches || !reaches(ranks[rank].stream.device(), owner.stream.device());
    }
    const std::size_t num_staged = program.num_staging_elements[rank];
    const std::size_t num_fetched = fetches ? program.num_fetched_elements[rank] : 0;
    const std::size_t num_bytes = (num_staged + num_fetched) * element_size;
    std::byte* memory = num_bytes > 0 ? staging(rank, num_bytes) : nullptr;
    call.staging.push_back(memory);
    call.fetched.push_back(fetches ? memory + num_staged * element_size : nullptr);
  }
  sent_.assign(ranks.size(), nullptr);
  received_.assign(program.num_receives, nullptr);
  for (const GroupStep& step : program.steps) run_step(step, call);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const std::size_t receive : program.at_end[rank]) {
      ranks[rank].stream.wait(received_[receive]);
    }
  }
  sent_.clear();
  received_.clear();
}

void GroupExecutor::run_step(const GroupStep& step, const Call& call) {
  const std::size_t element_size = size_of(call.ranks[0].buffer.dtype);
  for (const GroupStage& stage : step.staged) {
    const auto r = static_cast<std::size_t>(stage.rank);
    const TensorView from = part_of(call.ranks[r].buffer, stage.chunk);
    const TensorView to{call.staging[r] + stage.staging_offset * element_size, from.dtype,
                        from.num_elements};
    copy_on_stream(call.ranks[r].stream, from, to);
  }
  for (const int sender : step.senders) {
    const auto s = static_cast<std::size_t>(sender);
    sent_[s] = call.ranks[s].stream.record();
  }
  for (const GroupReceive& receive : step.receives) run_receive(receive, call);
}

void GroupExecutor::run_receive(const GroupReceive& receive, const Call& call) {
  runtime::Stream& stream = call.ranks[static_cast<std::size_t>(receive.rank)].stream;
  for (const int from : receive.from_ranks) stream.wait(sent_[static_cast<std::size_t>(from)]);
  for (const std::size_t earlier : receive.after) stream.wait(received_[earlier]);
  for (const GroupWrite& write : receive.writes) run_write(write, receive.rank, call);
  received_[receive.number] = stream.record();
}

void GroupExecutor::run_write(const GroupWrite& write, int rank, const Call& call) {
  const auto r = static_cast<std::size_t>(rank);
  const GroupRank& mine = call.ranks[r];
  const TensorView to = part_of(mine.buffer, write.chunk);
  const std::size_t element_size = size_of(to.dtype);
  const auto memory_of = [&](const GroupSource& source) {
    const auto s = static_cast<std::size_t>(source.rank);
    if (source.from == GroupSource::From::buffer) {
      return part_of(call.ranks[s].buffer, write.chunk);
    }
    return TensorView{call.staging[s] + source.staging_offset * element_size, to.dtype,
                      to.num_elements};
  };
  if (write.combine == plan::Combine::copy) {
    copy_on_stream(mine.stream, memory_of(write.sources[0]), to);
    return;
  }
  sources_.clear();
  std::byte* fetched = call.fetched[r];
  for (const GroupSource& source : write.sources) {
    TensorView memory = memory_of(source);
    const runtime::Stream& owner = call.ranks[static_cast<std::size_t>(source.rank)].stream;
    if (!reaches(mine.stream.device(), owner.device())) {
      const TensorView local{fetched, to.dtype, to.num_elements};
      copy_on_stream(mine.stream, memory, local);
      fetched += staging_room(to.num_elements) * element_size;
      memory = local;
    }
    sources_.push_back(memory);
  }
  reduce_on_stream(mine.stream, call.op, 1.0, sources_, std::span(&to, 1));
}

}  // namespace lockstep::comm
