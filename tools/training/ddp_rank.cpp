#include "tools/training/ddp_rank.h"

#include "engine/parallel/ddp/ddp.h"
#include "engine/trace/counters.h"
#include "tools/training/trained_model.h"

namespace lockstep::tools {

void train_ddp_rank(const TrainingTask& task, Device device, comm::Communicator& communicator,
                    const TrainingObserver& observer, TrainingResult& result) {
  RankModel model;
  model.devices = {device};
  model.inner = make_model(task, device);
  model.communicator = &communicator;
  model.num_ranks = static_cast<std::size_t>(communicator.world_size());
  parallel::DdpOptions options;
  options.reducer.bucket_byte_limits = task.bucket_byte_limits;
  {
    // What the ranks agree on, and rank 0's weights, are sent once, and not in every step.
    const trace::UncountedScope before_the_steps({communicator.rank()});
    model.wrapped = std::make_shared<parallel::Ddp>(model.inner, communicator, options);
  }
  // Bitwise mode reduces gradients by itself, in a fixed order. Of Ddp it needs the agreement
  // on the model, made by now; without the wrapper gradients stay where they are.
  if (task.summation == Summation::bitwise) model.wrapped = model.inner;
  RankReport report = run_rank(task, model, observer);
  if (communicator.rank() == 0) take_results(task, model, std::move(report), result);
}

}  // namespace lockstep::tools
