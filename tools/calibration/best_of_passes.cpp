#include "tools/calibration/best_of_passes.h"

#include <algorithm>
#include <utility>

#include "tools/report/median.h"

namespace lockstep::tools {
namespace {

using predict::MeasuredMachine;

// All that was measured, each in one order.
std::vector<double*> times(MeasuredMachine& machine) {
  std::vector<double*> all;
  const auto add = [&](std::vector<double>& values) {
    for (double& value : values) all.push_back(&value);
  };
  add(machine.forward.seconds);
  add(machine.backward.seconds);
  add(machine.weights_backward.seconds);
  for (predict::Curve& traffic : machine.traffic) add(traffic.seconds);
  add(machine.batch.seconds);
  add(machine.loss_forward.seconds);
  add(machine.loss_backward.seconds);
  for (predict::MeasuredAllReduce& all_reduce : machine.all_reduces) add(all_reduce.curve.seconds);
  return all;
}

std::vector<double*> ratios(MeasuredMachine& machine) {
  std::vector<double*> all{&machine.overlap.compute, &machine.overlap.comm, &machine.deviation};
  for (double& value : machine.layers_beside) all.push_back(&value);
  return all;
}

// figures: of a machine. choose: of a figure's values in all passes.
template <typename Figures, typename Choose>
void combine(MeasuredMachine& result, std::vector<MeasuredMachine>& passes, const Figures& figures,
             const Choose& choose) {
  std::vector<std::vector<double*>> measured;
  for (MeasuredMachine& pass : passes) measured.push_back(figures(pass));
  const std::vector<double*> chosen = figures(result);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    std::vector<double> values;
    for (const std::vector<double*>& pass : measured) values.push_back(*pass[i]);
    *chosen[i] = choose(std::move(values));
  }
}

}  // namespace

MeasuredMachine best_of_passes(std::vector<MeasuredMachine> passes) {
  MeasuredMachine result = passes.front();
  combine(result, passes, times, [](const auto& values) { return std::ranges::min(values); });
  combine(result, passes, ratios, median);
  return result;
}

}  // namespace lockstep::tools
