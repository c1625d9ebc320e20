// Ranks whose tensors may be on CUDA devices: when all have come to a call, rank 0 enqueues the
// work of all of them.
#include <utility>

#include "engine/comm/device_group.h"
#include "engine/comm/thread_rank.h"

namespace lockstep::comm {
namespace {

class DeviceRank final : public ThreadRank {
 public:
  // members: each rank's part in the current call, for rank 0.
  DeviceRank(std::shared_ptr<ThreadGroupState> state, GroupShape shape, unsigned num_spins,
             std::shared_ptr<std::vector<GroupMember>> members)
      : ThreadRank(std::move(state), std::move(shape), num_spins), members_(std::move(members)) {}

  void run_directly(const CollectiveCall& call, std::span<void* const> memory) override {
    if (!is_on_cuda(call)) return ThreadRank::run_directly(call, memory);
    if (call.header.operation == Operation::send) return send(call);
    if (call.header.operation == Operation::recv) return receive(call);
    enqueue(call);
  }

  void abandon(const Error& error) noexcept override {
    ThreadRank::abandon(error);
    mine() = {};
  }

 private:
  GroupMember& mine() { return (*members_)[static_cast<std::size_t>(rank())]; }

  void enqueue(const CollectiveCall& call) {
    mine() = {call.stream, call.input, call.output};
    meet();
    if (rank() == 0) enqueue_collective(call_, *members_);
    meet();
    mine() = {};
  }

  void send(const CollectiveCall& call) {
    throw_if_failed();
    const Tensor copy = Tensor::empty(call.input.shape(), call.input.dtype(), call.input.device());
    runtime::Stream& compute = call.input.stream();
    if (call.stream != &compute) {
      // The pool gives out what earlier work of the compute stream may still use.
      call.stream->wait(compute.record());
      copy.storage()->record_use(*call.stream);
    }
    copy_on_stream(*call.stream, call.input.view(), copy.view());
    put(call.peer, &Channel::messages, SentTensor{call.header, copy, call.stream->record()});
  }

  void receive(const CollectiveCall& call) {
    const SentTensor message = take_message(call.peer, call.header, call.timeout_seconds);
    call.stream->wait(message.written);
    message.data.storage()->record_use(*call.stream);
    copy_on_stream(*call.stream, message.data.view(), call.input.view());
  }

  std::shared_ptr<std::vector<GroupMember>> members_;
};

}  // namespace

std::vector<std::unique_ptr<Group>> make_thread_ranks(int world_size, unsigned num_spins) {
  const auto state = std::make_shared<ThreadGroupState>(world_size);
  const auto members = std::make_shared<std::vector<GroupMember>>(state->ranks.size());
  std::vector<std::unique_ptr<Group>> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    GroupShape shape;
    shape.rank = rank;
    shape.world_size = world_size;
    shape.name = "thread";
    shape.shares_memory = true;
    ranks.push_back(std::make_unique<DeviceRank>(state, std::move(shape), num_spins, members));
  }
  return ranks;
}

}  // namespace lockstep::comm
