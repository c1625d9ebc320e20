#include "simulate/predict/measured_machine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "simulate/predict/all_reduce_cost.h"
#include "simulate/predict/kernel_cost.h"
#include "simulate/predict/step.h"

namespace lockstep::predict {
namespace {

using ::testing::HasSubstr;

TEST(Curve, PassesThroughItsPoints) {
  const Curve curve{{100, 1000, 10000}, {2, 8, 80}};
  EXPECT_NEAR(curve.at(100), 2, 1e-12);
  EXPECT_NEAR(curve.at(1000), 8, 1e-12);
  EXPECT_NEAR(curve.at(550), 5, 1e-12);  // halfway
  EXPECT_NEAR(curve.at(1), 2, 1e-12);
  EXPECT_NEAR(curve.at(30000), 240, 1e-9);
}

// Rows 2 and 8, inputs 10, outputs 1 and 4: a law that is linear in each.
LayerGrid grid() {
  LayerGrid grid{{{{2, 8}, {10}, {1, 4}}}, {}};
  for (const double rows : grid.axes[0]) {
    for (const double outputs : grid.axes[2]) grid.seconds.push_back((3 + rows) * (1 + outputs));
  }
  return grid;
}

TEST(LayerGrid, IsExactForLinearLawsBetweenItsPoints) {
  EXPECT_NEAR(grid().at(2, 10, 4), 25, 1e-12);
  EXPECT_NEAR(grid().at(4, 10, 2), 21, 1e-12);
  EXPECT_NEAR(grid().at(16, 10, 1), 44, 1e-12);  // twice the last row's
  EXPECT_NEAR(grid().at(2, 30, 1), 30, 1e-12);   // three times the last input's
}

std::string file_of(const std::string& measured) {
  return fmt::format(R"({{"schema": "lockstep.topology/1", "name": "here", "source": "a test",
"device": {{"name": "CPU, 1 thread", "tflops": 0.1, "memory_gb_per_s": 10, "memory_gb": 8, "launch_us": 0}},
"host": {{"gb_per_s": 20, "thread_gb_per_s": 10}},
"nodes": [{{"name": "a", "kind": "device"}}, {{"name": "b", "kind": "device"}}, {{"name": "m", "kind": "cpu"}}],
"links": [{{"from": "a", "to": "m", "kind": "memory", "gb_per_s": 10, "latency_us": 1}},
{{"from": "b", "to": "m", "kind": "memory", "gb_per_s": 10, "latency_us": 1}}],
"measured": {{{}}}}})",
                     measured);
}

const std::string kLayers =
    R"("layers": {"rows": [8, 16], "inputs": [64], "outputs": [64], "forward_us": [10, 18],
"backward_us": [20, 36], "weights_backward_us": [11, 19]})";
const std::string kRest = R"("threads_per_device": 1, "traffic": [
{"devices": 1, "bytes": [1000, 4000], "us": [1, 4]}, {"devices": 2, "bytes": [1000, 4000], "us": [2, 16]}],
"batch": {"bytes": [1000], "us": [3]}, "loss": {"bytes": [4000], "forward_us": [5], "backward_us": [2]},
"layers_beside": [1, 1.5], "overlap": {"compute": 0.5, "comm": 0.25}, "deviation": 0)";
const std::string kAllReduces = R"("all_reduces": [
{"ranks": "threads", "devices": 2, "bytes": [1024, 16640], "us": [30, 200]},
{"ranks": "processes", "devices": 2, "bytes": [1024, 16640], "us": [60, 400]}])";

Topology here() {
  return parse_topology("here.json", file_of(kLayers + "," + kRest + "," + kAllReduces));
}

TEST(MeasuredMachine, LayersAndTrafficTakeWhatTheyTookThere) {
  const DeviceProfile device = here().device;
  ASSERT_NE(device.measured, nullptr);
  const LayerShape layer{16, 64, 64};
  EXPECT_NEAR(forward_seconds(device, layer), 18e-6, 1e-12);
  EXPECT_NEAR(backward_seconds(device, layer, InputGradient::needed), 36e-6, 1e-12);
  EXPECT_NEAR(backward_seconds(device, layer, InputGradient::not_needed), 19e-6, 1e-12);
  EXPECT_NEAR(traffic_seconds(device, 5000), 5e-6, 1e-12);
  EXPECT_NEAR(batch_seconds(device, 2000), 6e-6, 1e-12);
  EXPECT_NEAR(loss_seconds(device, 100, 10).forward, 5e-6, 1e-12);
  EXPECT_NEAR(loss_seconds(device, 200, 10).backward, 4e-6, 1e-12);
  EXPECT_EQ(layers_beside(device, 1), 1);
  EXPECT_EQ(layers_beside(device, 2), 1.5);
  EXPECT_EQ(layers_beside(device, 3), 1.5);  // of the most that were measured
  EXPECT_EQ(traffic_beside(device, 1, 4000), 1);
  EXPECT_NEAR(traffic_beside(device, 2, 1000), 2, 1e-9);
  EXPECT_NEAR(traffic_beside(device, 2, 9000), 4, 1e-9);
  EXPECT_EQ(device.overlap().compute, 0.5);
}

// An update of 1000 bytes of parameters moves 5000: 5 us of traffic on one device, and
// 15 us on each of two.
TEST(MeasuredMachine, AnUpdateTakesLongerOnTwoDevices) {
  const DeviceProfile device = here().device;
  const double together = 5e-6 * traffic_beside(device, 2, 5000);
  ASSERT_GT(together, 10e-6);
  EXPECT_EQ(update_seconds_beside(device, 1, 1000, 7e-6), 7e-6);
  EXPECT_NEAR(update_seconds_beside(device, 2, 1000, 3e-6), 3e-6 * together / 5e-6, 1e-12);
  EXPECT_NEAR(update_seconds_beside(device, 2, 1000, 8e-6), together, 1e-12);
  EXPECT_EQ(update_seconds_beside(device, 2, 1000, 90e-6), 90e-6);
}

// Two devices with 8 rows each: their layers 1.5 times as long, an all-reduce behind them, of the
// 64 * 64 + 64 floats that were measured.
TEST(MeasuredMachine, AStepIsItsLayersAndAllReduce) {
  const Topology topology = here();
  Network network(topology);
  Workload workload;
  workload.layers.push_back(
      dense_layer(topology.device, "0", {8, 64, 64}, InputGradient::not_needed));
  StepOptions options;
  options.num_devices = 2;
  const double compute = 1.5 * (10e-6 + 11e-6);
  EXPECT_NEAR(predict_step(network, workload, options).step_seconds, compute + 200e-6, 1e-9);
  options.ranks = RankKind::processes;
  EXPECT_NEAR(predict_step(network, workload, options).step_seconds, compute + 400e-6, 1e-9);
  // A plan that is named costs the links' charge.
  options.own_plan = plan::AllReducePlan::ring;
  EXPECT_LT(predict_step(network, workload, options).step_seconds, compute + 100e-6);
}

// The automatic plan of 16 KiB is another than that of a little more, and the links charge twice
// for it.
TEST(MeasuredMachine, AllReducesBetweenSizesTakeTimesBetween) {
  const Topology topology = here();
  Network network(topology);
  AllReduceCost cost(network, 2, std::nullopt);
  const Curve& measured = topology.device.measured->all_reduces[0].curve;
  for (const std::size_t bytes : {2048UL, 8192UL, 12000UL}) {
    const double seconds = measured.at(static_cast<double>(bytes));
    EXPECT_NEAR(cost.seconds(bytes), seconds, 0.03 * seconds) << bytes;
  }
}

std::string mistake_in(const std::string& measured) {
  try {
    parse_topology("here.json", file_of(measured));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Io);
    return error.what();
  }
  return "no error";
}

TEST(MeasuredMachine, MistakesAreNamedWithTheirField) {
  const std::string all = kLayers + ",\n" + kRest + ",\n" + kAllReduces;
  EXPECT_EQ(mistake_in(all), "no error");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = all;
    text.replace(text.find(from), from.size(), to);
    return mistake_in(text);
  };
  EXPECT_THAT(with("[8, 16]", "[16, 8]"), HasSubstr("expected measured.layers.rows"));
  EXPECT_THAT(with("[10, 18]", "[10]"), HasSubstr("2 numbers"));
  EXPECT_THAT(with("[20, 36]", "[20, 0]"), HasSubstr("measured.layers.backward_us"));
  EXPECT_THAT(with("[1, 1.5]", "[1]"), HasSubstr("measured.layers_beside to be 2 numbers"));
  EXPECT_THAT(with("\"comm\": 0.25", "\"comm\": 3"), HasSubstr("at most 1"));
  EXPECT_THAT(with("\"processes\"", "\"fibres\""), HasSubstr("found 'fibres'"));
  EXPECT_THAT(with("\"devices\": 1", "\"devices\": 3"), HasSubstr("to be 1, in this place"));
  EXPECT_THAT(with(R"({"devices": 1, "bytes": [1000, 4000], "us": [1, 4]}, )", ""),
              HasSubstr("to be 1, in this place"));
  EXPECT_THAT(with(R"(, {"devices": 2, "bytes": [1000, 4000], "us": [2, 16]})", ""),
              HasSubstr("traffic is of up to 1 devices, and the machine has 2"));
  EXPECT_THAT(with(R"("threads", "devices": 2)", R"("threads", "devices": 3)"),
              HasSubstr("2 to 2"));
  EXPECT_THAT(with("\"overlap\"", "\"overlaps\""), HasSubstr("did you mean 'overlap'?"));
}

}  // namespace
}  // namespace lockstep::predict
