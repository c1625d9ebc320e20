// Trains one Linear layer with the installed library, as any other project would.
#include <iostream>

#include "engine/core/rng.h"
#include "engine/nn/layers.h"
#include "engine/nn/loss.h"
#include "engine/optim/optimizer.h"

int main() {
  lockstep::Rng rng(7);
  const auto inputs =
      lockstep::Variable(lockstep::Tensor::uniform(lockstep::Shape{32, 4}, -1, 1, rng));
  const auto targets = lockstep::Tensor::full(lockstep::Shape{32, 1}, 2.5);

  lockstep::nn::Linear model(4, 1, rng);
  lockstep::optim::Sgd optimizer(model.parameters(), {.learning_rate = 0.1});
  const lockstep::nn::MSELoss criterion;

  const double first_loss = criterion(model(inputs), targets).value().item();
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    criterion(model(inputs), targets).backward();
    optimizer.step();
  }
  const double last_loss = criterion(model(inputs), targets).value().item();
  std::cout << model.to_string() << ": loss " << first_loss << " -> " << last_loss << '\n';
  return last_loss < 0.01 * first_loss ? 0 : 1;
}
