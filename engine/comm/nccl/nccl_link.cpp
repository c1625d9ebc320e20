#include "engine/comm/nccl/nccl_link.h"

#include "engine/comm/nccl/nccl_library.h"
#include "engine/comm/nccl/nccl_meeting.h"
#include "engine/comm/nccl/nccl_types.h"
#include "engine/runtime/logical_device.h"

namespace lockstep::comm::nccl {
namespace {

// Each time is a request to the store.
constexpr std::chrono::milliseconds kAskAgainAfter{1};

}  // namespace

Link::Link(End end, std::string key, std::shared_ptr<Store> store, runtime::LogicalDevice& device,
           std::shared_ptr<Watch> watch)
    : end_(end),
      key_(std::move(key)),
      store_(std::move(store)),
      watch_(std::move(watch)),
      stream_(device, device.gpu(), runtime::cuda::cuda_stream(device.comm_stream()).fault()) {}

void Link::finish() {
  const std::uint32_t num_posted = worker_.num_posted();
  for (std::uint32_t seen; (seen = worker_.num_finished().load()) != num_posted;) {
    worker_.num_finished().wait_while_equal(seen);
  }
}

void Link::close(const Comm::Check& check) {
  if (comm_ != nullptr) comm_->close(check);
}

void Link::post(const CollectiveCall& call, const Tensor& memory,
                std::shared_ptr<runtime::Event> ready, std::shared_ptr<NcclWork> work) {
  worker_.post([this, header = call.header, timeout_seconds = call.timeout_seconds,
                memory = Tensor(memory), ready = std::move(ready), work = std::move(work),
                waiter = &call.input.stream()]() mutable {
    try {
      watch_->throw_if_failed();
      stream_.wait(ready);
      run(header, timeout_seconds, memory);
      const std::shared_ptr<runtime::Event> done = stream_.record();
      watch_->add(header, done, timeout_seconds);
      memory.storage()->record_use(stream_);
      memory = {};
      work->finish(nullptr, {done, waiter});
    } catch (const Error& error) {
      watch_->break_group(error);
      memory = {};
      work->finish(std::current_exception(), {});
    }
  });
}

void Link::run(const CallHeader& call, double timeout_seconds, const Tensor& memory) {
  if (comm_ == nullptr) connect(call, timeout_seconds);
  const ncclDataType_t type = nccl_type(memory.dtype());
  const Comm::Check check = watch_->check_of(call, timeout_seconds);
  const std::size_t count = memory.num_elements();
  if (end_ == End::sender) {
    const auto send = [&](ncclComm_t comm) {
      return library().send(memory.raw(), count, type, 1, comm, stream_.handle());
    };
    comm_->call({"ncclSend", send}, check);
  } else {
    const auto receive = [&](ncclComm_t comm) {
      return library().recv(memory.raw(), count, type, 0, comm, stream_.handle());
    };
    comm_->call({"ncclRecv", receive}, check);
  }
}

// The sender makes the id, so it never waits for a receiver that has not come.
void Link::connect(const CallHeader& call, double timeout_seconds) {
  const Comm::Check check = watch_->check_of(call, timeout_seconds);
  ncclUniqueId id;
  if (end_ == End::sender) {
    nccl::check("ncclGetUniqueId", library().get_unique_id(&id));
    store_->set(key_, to_text(id));
  } else {
    std::optional<std::string> text;
    while (!(text = store_->try_get(key_))) {
      check();
      std::this_thread::sleep_for(kAskAgainAfter);
    }
    id = parse_unique_id(*text);
  }
  comm_ = std::make_shared<Comm>(stream_.gpu(), 2, id, end_ == End::sender ? 0 : 1);
  watch_->add(comm_);
  comm_->wait_until_ready(check);
}

}  // namespace lockstep::comm::nccl
