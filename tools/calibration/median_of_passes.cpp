#include "tools/calibration/median_of_passes.h"

#include <utility>

#include "tools/report/median.h"

namespace lockstep::tools {
namespace {

using predict::MeasuredMachine;

using Figures = std::vector<double*>;  // in one order

void add(Figures& all, std::vector<double>& values) {
  for (double& value : values) all.push_back(&value);
}

Figures figures_of(MeasuredMachine& machine) {
  Figures all{&machine.overlap.compute, &machine.overlap.comm, &machine.deviation};
  for (predict::LayerGrid* grid :
       {&machine.forward, &machine.backward, &machine.weights_backward}) {
    add(all, grid->seconds);
  }
  for (predict::Curve* curve : {&machine.batch, &machine.loss_forward, &machine.loss_backward}) {
    add(all, curve->seconds);
  }
  add(all, machine.layers_beside);
  for (predict::Curve& traffic : machine.traffic) add(all, traffic.seconds);
  for (predict::MeasuredAllReduce& all_reduce : machine.all_reduces) {
    add(all, all_reduce.curve.seconds);
  }
  return all;
}

}  // namespace

MeasuredMachine median_of_passes(std::vector<MeasuredMachine> passes) {
  MeasuredMachine result = passes.front();
  std::vector<Figures> measured;
  for (MeasuredMachine& pass : passes) measured.push_back(figures_of(pass));
  const Figures chosen = figures_of(result);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    std::vector<double> values;
    for (const Figures& pass : measured) values.push_back(*pass[i]);
    *chosen[i] = median(std::move(values));
  }
  return result;
}

}  // namespace lockstep::tools
