// After training the weights are saved. On a shared disk the file is damaged now and then.
//
// Run:  bug_15      lockstep doctor -- bug_15
#include <unistd.h>

#include <filesystem>
#include <string>

#include "engine/nn/state_dict.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

void train_rank(const Place& place, const std::filesystem::path& path) {
  parallel::Ddp net(make_net(place.device), place.group);
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  for (int step = 0; step < digits.steps_per_epoch(kBatch) - 1; ++step) {
    sgd.zero_grad();
    mean_loss(net, digits.batch(step, kBatch).shard(place.rank, kRanks, place.device)).backward();
    sgd.step();
  }
  nn::save_weights(path, *net.module());
  report(*net.module(), place);
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, [] {
    const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                       ("bug_15." + std::to_string(::getpid()) + ".safetensors");
    on_ranks([&](const Place& place) { train_rank(place, path); });
    std::filesystem::remove(path);
  });
}
