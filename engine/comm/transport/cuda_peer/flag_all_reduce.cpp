#include "engine/comm/transport/cuda_peer/flag_all_reduce.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "engine/comm/transport/cuda_peer/flag_kernels.h"
#include "engine/core/error.h"
#include "engine/runtime/cuda/check.h"
#include "engine/runtime/cuda/cuda_stream.h"

namespace lockstep::comm::cuda_peer {
namespace {

using runtime::cuda::cuda_stream;

bool is_one(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && std::string_view(text) == "1";
}

enum class Switch { on, off, force };

Switch switched() {
  static const Switch value = [] {
    const char* text = std::getenv("LOCKSTEP_FLAG_ALL_REDUCE");
    const std::string_view word = text == nullptr ? "on" : text;
    require(word == "on" || word == "off" || word == "force", ErrorCode::Usage,
            "LOCKSTEP_FLAG_ALL_REDUCE", "is on, off or force, found '{}'", word);
    const bool is_serial = is_one("CUDA_LAUNCH_BLOCKING") || is_one("LOCKSTEP_CUDA_BLOCKING");
    if (word == "off" || is_serial) return Switch::off;
    return word == "force" ? Switch::force : Switch::on;
  }();
  return value;
}

// Ranks of one logical device share its streams; those of one GPU its room for blocks.
bool are_too_close(const runtime::LogicalDevice& a, const runtime::LogicalDevice& b) {
  return &a == &b || (a.gpu() == b.gpu() && switched() != Switch::force);
}

plan::AllReducePlan settled(plan::AllReducePlan plan, std::size_t num_ranks,
                            std::size_t num_bytes) {
  if (plan != plan::AllReducePlan::automatic) return plan;
  const std::size_t largest = num_ranks <= 4 ? 512 * 1024 : 256 * 1024;
  return num_bytes <= largest ? plan::AllReducePlan::one_shot : plan::AllReducePlan::two_shot;
}

bool is_capturing(runtime::Stream* stream) {
  return cuda_stream(*stream).is_capturing();
}

// A rank's kernels run one after the other, also where a call is on another of its streams than the
// last one. A stream outside of a graph cannot be waited for inside; the graph's launch follows it.
void follow(std::span<runtime::Stream* const> last, std::span<runtime::Stream* const> now) {
  for (std::size_t rank = 0; rank < now.size(); ++rank) {
    if (last[rank] != now[rank] && is_capturing(last[rank]) == is_capturing(now[rank])) {
      now[rank]->wait(last[rank]->record());
    }
  }
}

}  // namespace

bool FlagAllReduce::serves(std::span<runtime::Stream* const> streams) const {
  if (switched() == Switch::off || streams.size() < 2 || streams.size() > kMaxFlagRanks) {
    return false;
  }
  for (std::size_t rank = 0; rank < streams.size(); ++rank) {
    for (std::size_t other = 0; other < rank; ++other) {
      if (are_too_close(streams[rank]->device(), streams[other]->device())) return false;
    }
  }
  // Zeroes that a graph writes would come again with every launch of it.
  return ranks_.contains(devices_of(streams)) || std::ranges::none_of(streams, is_capturing);
}

FlagAllReduce::Devices FlagAllReduce::devices_of(std::span<runtime::Stream* const> streams) {
  Devices devices;
  for (runtime::Stream* stream : streams) devices.push_back(&stream->device());
  return devices;
}

FlagAllReduce::Ranks FlagAllReduce::prepare(std::span<runtime::Stream* const> streams) {
  Ranks ranks;
  ranks.last_streams.assign(streams.begin(), streams.end());
  std::vector<std::shared_ptr<runtime::Event>> cleared;
  for (runtime::Stream* stream : streams) {
    runtime::LogicalDevice& device = stream->device();
    // Of the device itself, also while a step runs that takes its memory from a graph.
    auto memory =
        std::make_shared<runtime::Storage>(device, sizeof(FlagMemory), device.own_memory());
    // Peers read it after this rank's kernel is done.
    for (runtime::Stream* peer : streams) {
      memory->record_use(peer->device().compute_stream());
      memory->record_use(peer->device().comm_stream());
    }
    // The pool gives out what earlier work of the compute stream may still use.
    if (stream != &device.compute_stream()) stream->wait(device.compute_stream().record());
    const runtime::cuda::CurrentGpu current(device.gpu());
    CUDA_CHECK(
        cudaMemsetAsync(memory->data(), 0, sizeof(FlagMemory), cuda_stream(*stream).handle()));
    cleared.push_back(stream->record());
    ranks.memory.push_back(std::move(memory));
  }
  for (runtime::Stream* stream : streams) {
    for (const auto& event : cleared) stream->wait(event);
  }
  return ranks;
}

void FlagAllReduce::enqueue(plan::AllReducePlan plan, ReduceOp op, double factor,
                            std::span<runtime::Stream* const> streams,
                            std::span<const TensorView> buffers) {
  if (buffers[0].num_elements == 0) return;
  const Devices devices = devices_of(streams);
  auto found = ranks_.find(devices);
  if (found == ranks_.end()) found = ranks_.emplace(devices, prepare(streams)).first;
  Ranks& known = found->second;
  follow(known.last_streams, streams);
  known.last_streams.assign(streams.begin(), streams.end());
  std::vector<FlagRank> ranks;
  for (std::size_t rank = 0; rank < streams.size(); ++rank) {
    auto* const memory = static_cast<FlagMemory*>(known.memory[rank]->data());
    ranks.push_back({streams[rank], buffers[rank], memory});
  }
  launch_flag_kernels(settled(plan, ranks.size(), buffers[0].num_bytes()), op, factor, ranks,
                      patience_seconds_);
}

}  // namespace lockstep::comm::cuda_peer
