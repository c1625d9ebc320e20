#include "simulate/predict/measured_machine.h"

#include <algorithm>

namespace lockstep::predict {

const char* to_string(RankKind ranks) {
  return ranks == RankKind::threads ? "threads" : "processes";
}

std::optional<RankKind> parse_rank_kind(std::string_view name) {
  for (const RankKind ranks : {RankKind::threads, RankKind::processes}) {
    if (name == to_string(ranks)) return ranks;
  }
  return std::nullopt;
}

AxisPlace place_on(const std::vector<double>& points, double value) {
  if (value <= points.front()) return {};
  if (value >= points.back()) return {points.size() - 1, 0, value / points.back()};
  const auto next = std::ranges::upper_bound(points, value);
  const auto index = static_cast<std::size_t>(next - points.begin()) - 1;
  return {index, (value - points[index]) / (*next - points[index]), 1};
}

double Curve::at(double size) const {
  const AxisPlace place = place_on(sizes, size);
  double total = (1 - place.share) * seconds[place.index];
  if (place.share > 0) total += place.share * seconds[place.index + 1];
  return total * place.beyond;
}

double LayerGrid::at(double rows, double inputs, double outputs) const {
  const std::array<AxisPlace, 3> places{place_on(axes[0], rows), place_on(axes[1], inputs),
                                        place_on(axes[2], outputs)};
  double total = 0;
  double beyond = 1;
  for (const AxisPlace& place : places) beyond *= place.beyond;
  for (unsigned corner = 0; corner < 8; ++corner) {
    double weight = 1;
    std::size_t index = 0;
    for (unsigned axis = 0; axis < 3; ++axis) {
      const bool is_next = (corner >> axis & 1U) != 0;
      weight *= is_next ? places[axis].share : 1 - places[axis].share;
      index = index * axes[axis].size() + places[axis].index + (is_next ? 1 : 0);
    }
    if (weight > 0) total += weight * seconds[index];
  }
  return total * beyond;
}

}  // namespace lockstep::predict
