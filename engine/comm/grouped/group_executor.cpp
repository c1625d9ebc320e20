#include "engine/comm/grouped/group_executor.h"

#include <algorithm>
#include <memory>
#include <vector>

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

namespace {

// For a rank that cannot read the others' memory and fetches what it adds up: the most that one
// write takes.
std::size_t num_fetched_elements(const RankProgram& program) {
  std::size_t most = 0;
  for (const ProgramStep& step : program.steps) {
    for (const auto& [write, sends_before] : step.writes) {
      most = std::max(most, write.from_ranks.size() * staging_room(write.chunk.count));
    }
  }
  return most;
}

class GroupRun {
 public:
  GroupRun(std::span<const RankProgram> programs, std::span<const GroupRank> ranks, ReduceOp op,
           const std::function<std::byte*(std::size_t rank, std::size_t num_bytes)>& staging)
      : programs_(programs), ranks_(ranks), op_(op) {
    const std::size_t element_size = size_of(ranks[0].buffer.dtype);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const bool fetches = std::ranges::any_of(ranks, [&](const GroupRank& owner) {
        return !reaches(ranks[rank].stream.device(), owner.stream.device());
      });
      const std::size_t num_staged = programs[rank].num_staging_elements;
      const std::size_t num_fetched = fetches ? num_fetched_elements(programs[rank]) : 0;
      const std::size_t num_bytes = (num_staged + num_fetched) * element_size;
      staging_.push_back(num_bytes > 0 ? staging(rank, num_bytes) : nullptr);
      fetched_.push_back(fetches ? staging_[rank] + num_staged * element_size : nullptr);
      reads_.emplace_back(programs[rank].num_sends);
    }
  }

  void enqueue() {
    for (std::size_t step = 0; step < programs_[0].steps.size(); ++step) run_step(step);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      wait_until_read(rank, programs_[rank].sends_at_end);
    }
  }

 private:
  using EventPtr = std::shared_ptr<runtime::Event>;

  // When a rank's stream has read what another one sent.
  struct Read {
    int by = 0;
    EventPtr event;
  };

  void run_step(std::size_t step) {
    const std::size_t num_ranks = ranks_.size();
    for (std::size_t rank = 0; rank < num_ranks; ++rank) stage(step, rank);
    sent_.assign(num_ranks, nullptr);
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      if (!programs_[rank].steps[step].sends.empty()) sent_[rank] = ranks_[rank].stream.record();
    }
    std::vector<EventPtr> received(num_ranks);
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      if (!programs_[rank].steps[step].writes.empty()) received[rank] = run_writes(step, rank);
    }
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      for (const ProgramSend& send : programs_[rank].steps[step].sends) {
        reads_[rank][send.number] = {send.to_rank,
                                     received[static_cast<std::size_t>(send.to_rank)]};
      }
    }
  }

  void stage(std::size_t step, std::size_t rank) {
    for (const StagedChunk& staged : programs_[rank].steps[step].staged) {
      const TensorView from = part_of(rank, staged.chunk);
      copy_on_stream(ranks_[rank].stream, from, staged_at(rank, staged.staging_offset, from));
    }
  }

  EventPtr run_writes(std::size_t step, std::size_t rank) {
    const std::vector<ProgramWrite>& writes = programs_[rank].steps[step].writes;
    runtime::Stream& stream = ranks_[rank].stream;
    std::vector<int> senders;
    std::vector<std::size_t> overwritten;
    for (const auto& [write, sends_before] : writes) {
      senders.insert(senders.end(), write.from_ranks.begin(), write.from_ranks.end());
      overwritten.insert(overwritten.end(), sends_before.begin(), sends_before.end());
    }
    std::ranges::sort(senders);
    const auto repeated = std::ranges::unique(senders);
    senders.erase(repeated.begin(), repeated.end());
    for (const int from : senders) stream.wait(sent_[static_cast<std::size_t>(from)]);
    std::ranges::sort(overwritten);
    wait_until_read(rank, overwritten);
    for (const ProgramWrite& write : writes) run_write(write.write, step, rank);
    return stream.record();
  }

  void run_write(const plan::Write& write, std::size_t step, std::size_t rank) {
    runtime::Stream& stream = ranks_[rank].stream;
    const TensorView to = part_of(rank, write.chunk);
    if (write.combine == plan::Combine::copy) {
      copy_on_stream(stream, sent_by(write.from_ranks[0], write.chunk, step, rank), to);
      return;
    }
    std::vector<int> summands = write.from_ranks;
    summands.insert(std::ranges::lower_bound(summands, static_cast<int>(rank)),
                    static_cast<int>(rank));
    std::vector<ConstTensorView> sources;
    std::byte* fetched = fetched_[rank];
    for (const int from : summands) {
      const bool is_mine = from == static_cast<int>(rank);
      TensorView source = is_mine ? to : sent_by(from, write.chunk, step, rank);
      if (!reaches(stream.device(), ranks_[static_cast<std::size_t>(from)].stream.device())) {
        const TensorView local{fetched, to.dtype, to.num_elements};
        copy_on_stream(stream, source, local);
        fetched += staging_room(to.num_elements) * size_of(to.dtype);
        source = local;
      }
      sources.push_back(source);
    }
    reduce_on_stream(stream, op_, 1.0, sources, std::span(&to, 1));
  }

  // Where a rank reads what another one sends it.
  TensorView sent_by(int from_rank, plan::Chunk chunk, std::size_t step, std::size_t rank) const {
    const auto from = static_cast<std::size_t>(from_rank);
    const std::vector<ProgramSend>& sends = programs_[from].steps[step].sends;
    const auto send = std::ranges::find_if(sends, [&](const ProgramSend& candidate) {
      return candidate.to_rank == static_cast<int>(rank) && candidate.chunk == chunk;
    });
    const TensorView values = part_of(from, chunk);
    return send->from == ProgramSend::From::buffer ? values
                                                   : staged_at(from, send->staging_offset, values);
  }

  TensorView part_of(std::size_t rank, plan::Chunk chunk) const {
    return ranks_[rank].buffer.part(chunk.offset, chunk.count);
  }

  // As large as these values.
  TensorView staged_at(std::size_t rank, std::size_t offset, TensorView values) const {
    return {staging_[rank] + offset * size_of(values.dtype), values.dtype, values.num_elements};
  }

  // The rank's stream waits for those that read these sends of it, by rising number. A stream that
  // has read a later one has read the earlier ones.
  void wait_until_read(std::size_t rank, std::span<const std::size_t> sends) {
    std::vector<bool> is_waited_for(ranks_.size());
    for (std::size_t i = sends.size(); i-- > 0;) {
      const Read& read = reads_[rank][sends[i]];
      const auto reader = static_cast<std::size_t>(read.by);
      if (!is_waited_for[reader]) ranks_[rank].stream.wait(read.event);
      is_waited_for[reader] = true;
    }
  }

  std::span<const RankProgram> programs_;
  std::span<const GroupRank> ranks_;
  ReduceOp op_;
  std::vector<std::byte*> staging_;
  std::vector<std::byte*> fetched_;       // nullptr where a rank reads the others' memory itself
  std::vector<EventPtr> sent_;            // by rank, of the current step
  std::vector<std::vector<Read>> reads_;  // by sending rank and number of the send
};

}  // namespace

void enqueue_programs(
    std::span<const RankProgram> programs, std::span<const GroupRank> ranks, ReduceOp op,
    const std::function<std::byte*(std::size_t rank, std::size_t num_bytes)>& staging) {
  GroupRun(programs, ranks, op, staging).enqueue();
}

}  // namespace lockstep::comm
