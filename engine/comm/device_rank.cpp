// Ranks whose tensors may be on CUDA devices: when all have come to a call, rank 0 enqueues the
// work of all of them.
#include <optional>
#include <utility>

#include "engine/comm/device_group.h"
#include "engine/comm/memory_group.h"
#include "engine/comm/queue.h"
#include "engine/runtime/device_span.h"

namespace lockstep::comm {
namespace {

// A message between CUDA devices.
struct SentTensor {
  Tensor data;                              // a copy
  std::shared_ptr<runtime::Event> written;  // passes when the data is there
};

// The threads share this beside their memory.
struct Devices {
  explicit Devices(std::size_t num_ranks) : members(num_ranks), messages(num_ranks * num_ranks) {}

  std::vector<GroupMember> members;         // each rank's part in the current call, for rank 0
  std::vector<Queue<SentTensor>> messages;  // by sender and receiver
};

class DeviceRank final : public MemoryRank {
 public:
  DeviceRank(GroupShape shape, SharedState shared, runtime::Spin spin,
             std::shared_ptr<Devices> devices)
      : MemoryRank(std::move(shape), std::move(shared), spin, 0), devices_(std::move(devices)) {}

  void put_on_stream(CollectiveCall& call, Launch launch) override {
    if (is_on_cuda(call)) call.stream = &order_.place(call.input, call.output, launch);
  }

  void announce(const CollectiveCall& call) override {
    stream_ = call.stream;
    if (stream_ != nullptr) begin_spans(call);
    MemoryRank::announce(call);
  }

  void end_data() noexcept override {
    MemoryRank::end_data();
    on_comm_lane_.reset();
    exposed_.reset();
  }

  void run_directly(const CollectiveCall& call, std::span<void* const> memory) override {
    if (!is_on_cuda(call)) return MemoryRank::run_directly(call, memory);
    stream_ = call.stream;
    if (call.header.operation == Operation::send) return send(call);
    if (call.header.operation == Operation::recv) return receive(call);
    enqueue(call);
  }

  // Returns when the stream no longer uses the call's tensors, too.
  void abandon(const Error& error) noexcept override {
    MemoryRank::abandon(error);
    mine() = {};
    try {
      if (stream_ != nullptr) stream_->synchronize();
    } catch (const Error&) {
      // The device is broken; nothing uses its memory any more.
    }
  }

 private:
  GroupMember& mine() { return devices_->members[static_cast<std::size_t>(rank())]; }
  Queue<SentTensor>& messages(int from, int to) {
    return devices_->messages[static_cast<std::size_t>(from * world_size() + to)];
  }

  // Until the call's end traces show the stream's work as the collective.
  void begin_spans(const CollectiveCall& call) {
    const auto begin = [&](std::optional<runtime::DeviceSpan>& span, trace::Lane lane) {
      span.emplace(*call.stream, lane, trace::Category::communication,
                   name_of(call.header.operation), call.input.num_bytes());
    };
    begin(on_comm_lane_, trace::Lane::comm);
    if (call.stream == &call.input.stream()) begin(exposed_, trace::Lane::compute);
  }

  void enqueue(const CollectiveCall& call) {
    // Throws here, on the rank itself, if its memory is freed: rank 0 would not know whose it was.
    if (call.input.defined()) static_cast<void>(call.input.raw());
    mine() = {call.stream, call.input, call.output};
    meet();
    if (rank() == 0) enqueue_collective(call_, devices_->members);
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
    messages(rank(), call.peer).put({copy, call.stream->record()});
    send_message(call.peer, call.header, {});
  }

  void receive(const CollectiveCall& call) {
    receive_message(call.peer, call.header, {}, call.timeout_seconds);
    const SentTensor message = messages(call.peer, rank()).take();
    call.stream->wait(message.written);
    message.data.storage()->record_use(*call.stream);
    copy_on_stream(*call.stream, message.data.view(), call.input.view());
  }

  std::shared_ptr<Devices> devices_;
  StreamOrder order_;
  runtime::Stream* stream_ = nullptr;  // the current call's, if it is on a CUDA device
  std::optional<runtime::DeviceSpan> on_comm_lane_;
  std::optional<runtime::DeviceSpan> exposed_;  // of a blocking call
};

}  // namespace

std::vector<std::unique_ptr<Group>> make_thread_ranks(int world_size, runtime::Spin spin) {
  const auto num_ranks = static_cast<std::size_t>(world_size);
  const auto devices = std::make_shared<Devices>(num_ranks);
  std::vector<SharedState> shared = share_between_threads(world_size, bytes_to_share(num_ranks));
  std::vector<std::unique_ptr<Group>> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    GroupShape shape;
    shape.rank = rank;
    shape.world_size = world_size;
    shape.name = "thread";
    shape.shares_memory = true;
    shape.takes_cuda = true;
    ranks.push_back(std::make_unique<DeviceRank>(
        std::move(shape), std::move(shared[static_cast<std::size_t>(rank)]), spin, devices));
  }
  return ranks;
}

}  // namespace lockstep::comm
