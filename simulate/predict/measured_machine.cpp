#include "simulate/predict/measured_machine.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "engine/core/json_file.h"
#include "engine/core/text.h"
#include "simulate/predict/all_reduce_cost.h"
#include "simulate/predict/topology.h"

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

namespace {

constexpr std::size_t kMaxPoints = 64;  // of an axis
constexpr double kShortestMicroseconds = 1e-4;
constexpr double kLongestMicroseconds = 1e9;
constexpr double kMostBeside = 1e3;

// Reads so many numbers, each within the range.
std::vector<double> read_numbers(const JsonFields& fields, const char* name, std::size_t count,
                                 std::pair<double, double> range) {
  std::vector<double> numbers = fields.numbers(name);
  const auto is_good = [&](double number) {
    return number >= range.first && number <= range.second;
  };
  if (numbers.size() != count || !std::ranges::all_of(numbers, is_good)) {
    fields.refuse(name,
                  fmt::format("{} numbers from {:g} to {:g}", count, range.first, range.second));
  }
  return numbers;
}

std::vector<double> read_sizes(const JsonFields& fields, const char* name) {
  std::vector<double> sizes = fields.numbers(name);
  const bool is_good = !sizes.empty() && sizes.size() <= kMaxPoints && sizes.front() >= 1 &&
                       std::ranges::adjacent_find(sizes, std::greater_equal<>()) == sizes.end();
  if (!is_good) {
    fields.refuse(
        name, fmt::format("1 to {} sizes from 1 on, each more than the one before", kMaxPoints));
  }
  return sizes;
}

std::vector<double> read_seconds(const JsonFields& fields, const char* name, std::size_t count) {
  std::vector<double> seconds =
      read_numbers(fields, name, count, {kShortestMicroseconds, kLongestMicroseconds});
  for (double& value : seconds) value *= 1e-6;
  return seconds;
}

Curve read_curve(const JsonFields& fields, const char* times = "us") {
  Curve curve;
  curve.sizes = read_sizes(fields, "bytes");
  curve.seconds = read_seconds(fields, times, curve.sizes.size());
  return curve;
}

void read_layers(const JsonFields& fields, MeasuredMachine& measured) {
  fields.require_only(
      {"rows", "inputs", "outputs", "forward_us", "backward_us", "weights_backward_us"});
  LayerGrid grid;
  grid.axes = {read_sizes(fields, "rows"), read_sizes(fields, "inputs"),
               read_sizes(fields, "outputs")};
  const std::size_t count = grid.axes[0].size() * grid.axes[1].size() * grid.axes[2].size();
  measured.forward = measured.backward = measured.weights_backward = grid;
  measured.forward.seconds = read_seconds(fields, "forward_us", count);
  measured.backward.seconds = read_seconds(fields, "backward_us", count);
  measured.weights_backward.seconds = read_seconds(fields, "weights_backward_us", count);
}

// The curves of 1, 2, ... num_devices devices.
std::vector<Curve> read_traffic(const JsonFields& measured, std::size_t num_devices) {
  std::vector<Curve> curves;
  for (const JsonFields& fields : measured.objects("traffic")) {
    fields.require_only({"devices", "bytes", "us"});
    if (fields.count("devices") != curves.size() + 1) {
      fields.refuse("devices", fmt::format("{}, in this place", curves.size() + 1));
    }
    curves.push_back(read_curve(fields));
  }
  if (curves.size() != num_devices) {
    measured.fail_at("traffic",
                     fmt::format("traffic is of up to {} devices, and the machine has {}",
                                 curves.size(), num_devices));
  }
  return curves;
}

// A plan's charge leaps where the automatic choice changes, between two sizes of a curve.
std::vector<double> with_sizes_between(const std::vector<double>& sizes) {
  constexpr double kGrowth = 1.2;
  std::vector<double> result;
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    for (double size = sizes[i]; size < sizes[i + 1]; size *= kGrowth) result.push_back(size);
  }
  result.push_back(sizes.back());
  return result;
}

MeasuredAllReduce read_all_reduce(const JsonFields& fields, const Topology& machine) {
  fields.require_only({"ranks", "devices", "bytes", "us"});
  MeasuredAllReduce measured;
  const std::string name = fields.text("ranks");
  const std::optional<RankKind> ranks = parse_rank_kind(name);
  if (!ranks) {
    fields.fail_at("ranks", fmt::format("ranks are threads or processes, found '{}'", shown(name)));
  }
  measured.ranks = *ranks;
  measured.num_devices = fields.count("devices");
  if (measured.num_devices < 2 || measured.num_devices > machine.gpus.size()) {
    fields.refuse("devices", fmt::format("2 to {}, which the machine has", machine.gpus.size()));
  }
  measured.curve = read_curve(fields);
  measured.over_plan.sizes = with_sizes_between(measured.curve.sizes);
  Network network(machine);
  for (const double bytes : measured.over_plan.sizes) {
    const double charged =
        own_plan_seconds(network, measured.num_devices, plan::AllReducePlan::automatic,
                         static_cast<std::size_t>(bytes));
    if (charged <= 0) fields.fail_at("bytes", "the links charge nothing for so few bytes");
    measured.over_plan.seconds.push_back(measured.curve.at(bytes) / charged);
  }
  return measured;
}

}  // namespace

std::shared_ptr<const MeasuredMachine> read_measured(const JsonFields& fields,
                                                     const Topology& machine) {
  fields.require_only({"threads_per_device", "layers", "layers_beside", "traffic", "batch", "loss",
                       "all_reduces", "overlap", "deviation"});
  auto measured = std::make_shared<MeasuredMachine>();
  measured->threads_per_device = fields.count("threads_per_device");
  read_layers(fields.object("layers"), *measured);
  measured->traffic = read_traffic(fields, machine.gpus.size());
  const JsonFields batch = fields.object("batch");
  batch.require_only({"bytes", "us"});
  measured->batch = read_curve(batch);
  const JsonFields loss = fields.object("loss");
  loss.require_only({"bytes", "forward_us", "backward_us"});
  measured->loss_forward = read_curve(loss, "forward_us");
  measured->loss_backward = read_curve(loss, "backward_us");
  measured->layers_beside =
      read_numbers(fields, "layers_beside", machine.gpus.size(), {1.0 / kMostBeside, kMostBeside});
  const JsonFields overlap = fields.object("overlap");
  overlap.require_only({"compute", "comm"});
  measured->overlap = {overlap.positive("compute"), overlap.positive("comm")};
  if (measured->overlap.compute > 1) overlap.refuse("compute", "a share, at most 1");
  if (measured->overlap.comm > 1) overlap.refuse("comm", "a share, at most 1");
  measured->deviation = fields.number("deviation");
  if (measured->deviation > 1) fields.refuse("deviation", "a share, at most 1");
  for (const JsonFields& all_reduce : fields.objects("all_reduces")) {
    measured->all_reduces.push_back(read_all_reduce(all_reduce, machine));
  }
  return measured;
}

}  // namespace lockstep::predict
