#include "tools/calibration/median_of_passes.h"

#include <cmath>
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

using GridOf = predict::LayerGrid MeasuredMachine::*;

// What a prediction takes of a layer is how its times for different rows relate, and a pass
// measures these one right after the other. So the medians are of a layer's times in units of their
// geometric mean, and of that mean.
void take_medians(GridOf grid, const std::vector<MeasuredMachine>& passes,
                  MeasuredMachine& result) {
  std::vector<double>& seconds = (result.*grid).seconds;
  const std::size_t num_rows = (result.*grid).axes[0].size();
  const std::size_t num_layers = num_rows == 0 ? 0 : seconds.size() / num_rows;
  for (std::size_t layer = 0; layer < num_layers; ++layer) {
    const auto at = [&](std::size_t row) { return row * num_layers + layer; };
    std::vector<double> means;
    for (const MeasuredMachine& pass : passes) {
      double logarithms = 0;
      for (std::size_t row = 0; row < num_rows; ++row) {
        logarithms += std::log((pass.*grid).seconds[at(row)]);
      }
      means.push_back(std::exp(logarithms / static_cast<double>(num_rows)));
    }
    const double mean = median(means);
    for (std::size_t row = 0; row < num_rows; ++row) {
      std::vector<double> shares;
      for (std::size_t i = 0; i < passes.size(); ++i) {
        shares.push_back((passes[i].*grid).seconds[at(row)] / means[i]);
      }
      seconds[at(row)] = median(std::move(shares)) * mean;
    }
  }
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
  for (const GridOf grid : {&MeasuredMachine::forward, &MeasuredMachine::backward,
                            &MeasuredMachine::weights_backward}) {
    take_medians(grid, passes, result);
  }
  return result;
}

}  // namespace lockstep::tools
