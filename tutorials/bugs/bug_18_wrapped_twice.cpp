// train() wraps the model that it is given. It is called twice, the second time with what the first
// call gave back.
//
// Run:  bug_18_wrapped_twice [--fixed]      lockstep doctor -- bug_18_wrapped_twice
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

std::shared_ptr<parallel::Ddp> train(const std::shared_ptr<nn::Module>& model, const Place& place,
                                     const tutorial::Rows& digits) {
  const auto net = std::make_shared<parallel::Ddp>(model, place.group);
  optim::Sgd sgd(net->parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  for (int step = 0; step < 12; ++step) {
    sgd.zero_grad();
    mean_loss(*net, digits.batch(step, kBatch).shard(place.rank, kRanks, place.device)).backward();
    sgd.step();
  }
  return net;
}

void train_rank(const Place& place, Version version) {
  const tutorial::Rows digits = load_rows();
  const auto model = make_net(place.device);
  std::shared_ptr<parallel::Ddp> first = train(model, place, digits);
  if (version == Version::fixed) {
    first.reset();  // one wrapper at a time
    train(model, place, digits);
  } else {
    train(first, place, digits);
  }
  report(*model, place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [](lockstep::bugs::Version version) {
    on_ranks([&](const Place& place) { train_rank(place, version); });
  });
}
