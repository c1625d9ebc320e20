#include "engine/parallel/sync_batch_norm.h"

#include <memory>
#include <utility>

#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/core/thread_context.h"
#include "engine/nn/batch_norm.h"
#include "engine/parallel/data_parallel/steps.h"

namespace lockstep::parallel {
namespace {

class CommunicatorExchange final : public StatisticsExchange {
 public:
  explicit CommunicatorExchange(comm::Communicator& communicator) : communicator_(communicator) {}
  explicit CommunicatorExchange(std::shared_ptr<comm::Communicator> owned)
      : owned_(std::move(owned)), communicator_(*owned_) {}

  Tensor gather(const Tensor& mine) override {
    const auto world = static_cast<std::size_t>(communicator_.world_size());
    const Tensor all = Tensor::empty({world * mine.num_elements()}, mine.dtype(), mine.device());
    communicator_.all_gather(mine, all).wait();
    return all;
  }
  void sum(const Tensor& mine) override { communicator_.all_reduce(mine).wait(); }

 private:
  std::shared_ptr<comm::Communicator> owned_;
  comm::Communicator& communicator_;
};

// Returns the number of batch norms.
std::size_t share(nn::Module& module, const std::shared_ptr<StatisticsExchange>& replicas) {
  std::size_t count = 0;
  if (auto* norm = dynamic_cast<nn::BatchNorm*>(&module)) {
    norm->share_statistics(replicas);
    ++count;
  }
  for (const auto& [name, child] : module.children()) count += share(*child, replicas);
  return count;
}

}  // namespace

std::size_t sync_batch_norm(nn::Module& module, comm::Communicator& communicator) {
  if (communicator.world_size() == 1) return share(module, nullptr);
  return share(module, std::make_shared<CommunicatorExchange>(communicator));
}

void sync_batch_norm(const std::vector<std::shared_ptr<nn::Module>>& replicas,
                     const std::vector<std::shared_ptr<StatisticsExchange>>& groups) {
  if (share(*replicas[0], groups[0]) == 0) return;
  require(thread_context().issue == Issue::by_workers, ErrorCode::State, "sync_batch_norm",
          "replicas share their statistics while all of them run, but one thread issues the work "
          "of all devices here (a captured graph does that): use DDP, or do without the graph");
  for (std::size_t i = 1; i < replicas.size(); ++i) share(*replicas[i], groups[i]);
}

std::vector<std::shared_ptr<StatisticsExchange>> make_statistics_exchanges(
    std::size_t num_replicas) {
  std::vector<std::shared_ptr<StatisticsExchange>> sums;
  for (auto& communicator : comm::make_thread_group(static_cast<int>(num_replicas))) {
    sums.push_back(std::make_shared<CommunicatorExchange>(
        std::shared_ptr<comm::Communicator>(std::move(communicator))));
  }
  return sums;
}

}  // namespace lockstep::parallel
