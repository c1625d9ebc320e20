// A model is trained, and later trained further. The second time, a step sends twice as many bytes.
//
// Run:  bug_18      lockstep doctor -- bug_18
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

void train_rank(const Place& place) {
  const tutorial::Rows digits = load_rows();
  const auto model = make_net(place.device);
  const std::shared_ptr<parallel::Ddp> trained = train(model, place, digits);
  train(trained, place, digits);
  report(*model, place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [] { on_ranks(train_rank); });
}
