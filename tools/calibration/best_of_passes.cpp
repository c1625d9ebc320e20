#include "tools/calibration/best_of_passes.h"

#include <algorithm>
#include <utility>

#include "tools/report/median.h"

namespace lockstep::tools {
namespace {

using predict::MeasuredMachine;

using Figures = std::vector<double*>;  // in one order

void add(Figures& all, std::vector<double>& values) {
  for (double& value : values) all.push_back(&value);
}

Figures of_one_device(MeasuredMachine& machine) {
  Figures all;
  for (predict::LayerGrid* grid :
       {&machine.forward, &machine.backward, &machine.weights_backward}) {
    add(all, grid->seconds);
  }
  for (predict::Curve* curve : {&machine.batch, &machine.loss_forward, &machine.loss_backward}) {
    add(all, curve->seconds);
  }
  return all;
}

// Traffic of one device is what that of several is compared with.
Figures of_several(MeasuredMachine& machine) {
  Figures all{&machine.overlap.compute, &machine.overlap.comm, &machine.deviation};
  add(all, machine.layers_beside);
  for (predict::Curve& traffic : machine.traffic) add(all, traffic.seconds);
  for (predict::MeasuredAllReduce& all_reduce : machine.all_reduces) {
    add(all, all_reduce.curve.seconds);
  }
  return all;
}

// choose: of a figure's values in all passes.
template <typename Choose>
void combine(MeasuredMachine& result, std::vector<MeasuredMachine>& passes,
             Figures (*figures)(MeasuredMachine&), const Choose& choose) {
  std::vector<Figures> measured;
  for (MeasuredMachine& pass : passes) measured.push_back(figures(pass));
  const Figures chosen = figures(result);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    std::vector<double> values;
    for (const Figures& pass : measured) values.push_back(*pass[i]);
    *chosen[i] = choose(std::move(values));
  }
}

}  // namespace

MeasuredMachine best_of_passes(std::vector<MeasuredMachine> passes) {
  MeasuredMachine result = passes.front();
  const auto shortest = [](const std::vector<double>& values) { return std::ranges::min(values); };
  combine(result, passes, of_one_device, shortest);
  combine(result, passes, of_several, median);
  return result;
}

}  // namespace lockstep::tools
