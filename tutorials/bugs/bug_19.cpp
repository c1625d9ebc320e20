// A layer counts the rows that it has seen. On one device it counts them all; on two the sum at the
// end is wrong.
//
// Run:  bug_19      lockstep doctor -- bug_19
#include <fmt/format.h>

#include "engine/optim/optimizer.h"
#include "engine/parallel/data_parallel/data_parallel.h"
#include "tutorials/bugs/lab.h"

namespace {

using namespace lockstep;
using namespace lockstep::bugs;

class CountingNet final : public nn::ModuleOf<CountingNet> {
 public:
  explicit CountingNet(std::shared_ptr<nn::Module> net) { register_child("net", std::move(net)); }
  Variable forward(const Variable& x) override {
    num_rows_ += x.shape()[0];
    return (*children()[0].second)(x);
  }
  int num_rows() const { return num_rows_; }
  std::string type_name() const override { return "CountingNet"; }

 private:
  int num_rows_ = 0;
};

void train() {
  const Device first{DeviceType::cpu, 0}, second{DeviceType::cpu, 1};
  const auto model = std::make_shared<CountingNet>(make_net(first));
  parallel::DataParallel net(model, {.devices = {first, second}});
  optim::Sgd sgd(net.parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  const tutorial::Rows digits = load_rows();
  for (int step = 0; step < digits.steps_per_epoch(kBatch); ++step) {
    const tutorial::Rows batch = digits.batch(step, kBatch);
    sgd.zero_grad();
    mean_loss(net, batch).backward();
    sgd.step();
  }
  fmt::print("trained on {} rows\n", model->num_rows());
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bugs::run_bug(argc, argv, train);
}
