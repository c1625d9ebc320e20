// Messages from one rank to one other, in order: an NCCL communicator of the two with a stream and
// a thread of its own, so that a message waits for nothing but its partner.
#pragma once

#include <memory>
#include <string>

#include "engine/comm/collective_call.h"
#include "engine/comm/nccl/nccl_watch.h"
#include "engine/comm/nccl/nccl_work.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/threads.h"

namespace lockstep::comm::nccl {

class Link {
 public:
  enum class End { sender, receiver };

  // Connects at the first message, in the link's thread. key: of the id in the store, the same at
  // both ends and of this link alone.
  Link(End end, std::string key, std::shared_ptr<Store> store, runtime::LogicalDevice& device,
       std::shared_ptr<Watch> watch);
  ~Link() = default;  // the thread first, then the communicator that it uses, then the stream
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Sends the tensor, or receives into it, once `ready` has passed; work is finished when that is
  // enqueued. The memory belongs to the link's stream until then.
  void post(const CollectiveCall& call, const Tensor& memory, std::shared_ptr<runtime::Event> ready,
            std::shared_ptr<NcclWork> work);

  // Waits until all messages are enqueued, or the group is broken.
  void finish();
  // After finish(), when all messages are through: closes the communicator.
  void close(const Comm::Check& check);

 private:
  void run(const CallHeader& call, double timeout_seconds, const Tensor& memory);
  void connect(const CallHeader& call, double timeout_seconds);

  End end_;
  std::string key_;
  std::shared_ptr<Store> store_;
  std::shared_ptr<Watch> watch_;
  runtime::cuda::CudaStream stream_;
  std::shared_ptr<Comm> comm_;  // null before the first message
  runtime::Worker worker_{"nccl link"};
};

}  // namespace lockstep::comm::nccl
