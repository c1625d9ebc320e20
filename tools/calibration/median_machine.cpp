#include "tools/calibration/median_machine.h"

#include <utility>

#include "tools/report/median.h"

namespace lockstep::tools {
namespace {

// All that was measured, in one order.
std::vector<double*> figures(predict::MeasuredMachine& machine) {
  std::vector<double*> all{&machine.overlap.compute, &machine.overlap.comm, &machine.deviation};
  const auto add = [&](std::vector<double>& values) {
    for (double& value : values) all.push_back(&value);
  };
  add(machine.forward.seconds);
  add(machine.backward.seconds);
  add(machine.weights_backward.seconds);
  add(machine.layers_beside);
  for (predict::Curve& traffic : machine.traffic) add(traffic.seconds);
  add(machine.batch.seconds);
  add(machine.loss_forward.seconds);
  add(machine.loss_backward.seconds);
  for (predict::MeasuredAllReduce& all_reduce : machine.all_reduces) add(all_reduce.curve.seconds);
  return all;
}

}  // namespace

predict::MeasuredMachine median_machine(std::vector<predict::MeasuredMachine> passes) {
  std::vector<std::vector<double*>> measured;
  for (predict::MeasuredMachine& pass : passes) measured.push_back(figures(pass));
  predict::MeasuredMachine result = passes.front();
  const std::vector<double*> medians = figures(result);
  for (std::size_t i = 0; i < medians.size(); ++i) {
    std::vector<double> values;
    for (const std::vector<double*>& pass : measured) values.push_back(*pass[i]);
    *medians[i] = median(std::move(values));
  }
  return result;
}

}  // namespace lockstep::tools
