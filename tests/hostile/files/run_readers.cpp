#include "tests/hostile/files/run_readers.h"

#include <cmath>
#include <string_view>

#include "tools/explain/explain.h"
#include "tools/page/loss_log.h"
#include "tools/page/page.h"
#include "tools/page/step_timeline.h"
#include "tools/prediction/run_workload.h"

namespace lockstep::testing {
namespace {

// A page that is whole, and has no picture of what is no number.
void expect_drawable(const std::string& page) {
  expect(page.ends_with("</html>\n"), "the page does not end");
  for (const std::string_view wrong : {"=\"nan", "=\"-nan", "=\"inf", "=\"-inf", "Mnan", "Lnan"}) {
    expect(page.find(wrong) == std::string::npos, "a picture of what is no number");
  }
}

}  // namespace

void read_workload_file(const std::filesystem::path& path) {
  const tools::RunWorkload run = tools::read_run_workload(path.string());
  expect(!run.step.layers.empty() && run.rows_per_epoch >= run.step.batch,
         "a workload without work");
}

std::vector<std::string> workload_files() {
  return {R"({"schema": "lockstep.run/1", "config": {"device": "cpu", "model": "mlp:4-3"},
  "rows": [{"mode": "single", "devices": 1, "batch": 8, "step_seconds": 0.1, "iterations": 4,
    "epoch_seconds": [0.5, 0.5]}],
  "workload": {"batch": 8, "input_bytes_per_row": 16, "host_seconds_per_op": 1e-6,
    "optimizer_seconds": 1e-5, "layers": [{"name": "0", "forward_seconds": 1e-5,
    "backward_seconds": 2e-5, "parameter_bytes": 60}], "ready_order": ["0.bias", "0.weight"]}})"};
}

void read_run(const std::filesystem::path& path) {
  std::vector<tools::page::PageRun> runs(1);
  runs[0].file = tools::read_run_file(path, "explain");
  tools::page::name_runs(runs);
  expect(!tools::explain(runs[0].file).empty(), "nothing is said of a run");
  expect_drawable(tools::page::make_page(runs));
  runs.push_back(runs[0]);
  expect_drawable(tools::page::make_page(runs));
}

std::vector<std::string> run_files() {
  return {R"({"schema": "lockstep.run/1", "date": "2026-01-31T23:59:59Z",
  "command": ["lockstep", "compare"], "host": {"cpu": "A processor", "cores": 4, "gpus": []},
  "config": {"device": "cpu", "model": "mlp:4-3", "dataset": "digits", "devices": [1, 2],
    "per_device_batch": null, "graph": false},
  "rows": [
    {"mode": "single", "kind": "measured", "devices": 1, "batch": 64, "epoch_seconds": [0.1, 0.1],
     "median_epoch_seconds": 0.1, "step_seconds": 0.01, "speedup": 1, "ideal_speedup": 1,
     "efficiency": 1, "busy_fraction": [0.9], "peak_bytes": [3145728], "final_loss": 0.25,
     "test_accuracy": 0.9, "breakdown_seconds": {"data": 0, "copy": 0, "forward": 0.003,
       "backward": 0.006, "exposed_comm": 0, "optimizer": 0.001, "wait": 0, "host": 0,
       "unattributed": 0}, "step_statistics": {"num_steps": 4, "median_seconds": {"data": 0,
       "copy": 0, "forward": 0.004, "backward": 0.006, "exposed_comm": 0, "optimizer": 0.001,
       "wait": 0, "host": 0, "unattributed": 0}}},
    {"mode": "ddp", "kind": "measured", "devices": 2, "physical_devices": 1, "batch": 64,
     "threads_per_device": 1, "contended": true, "epoch_seconds": [0.06], "step_seconds": 0.006,
     "median_epoch_seconds": 0.06, "speedup": 1.67, "ideal_speedup": 2, "efficiency": 0.83,
     "busy_fraction": [0.9, 0.8], "comm_bytes_per_device_per_step": 1048576,
     "peak_bytes": [3145728, 3145728], "verdict": {"equal": true}, "breakdown_seconds": {"data": 0,
       "copy": 0, "forward": 0.0015, "backward": 0.003, "exposed_comm": 0.0005,
       "optimizer": 0.001, "wait": 0, "host": 0, "unattributed": 0},
     "overlapped_comm_seconds": 0.0002},
    {"mode": "ddp", "kind": "acted", "slow_motion": 40, "devices": 4, "batch": 64,
     "step_seconds": 0.004},
    {"mode": "zero", "kind": "predicted", "devices": 8, "batch": 64, "step_seconds": 0.002}]})",
          workload_files()[0]};
}

void read_loss_log(const std::filesystem::path& path) {
  const std::vector<tools::page::Point> losses = tools::page::read_losses(path, "report");
  expect(!losses.empty() && losses.size() <= 240, "as many losses as no curve has");
  for (const tools::page::Point& point : losses) {
    expect(std::isfinite(point.x) && std::isfinite(point.y), "a loss is not finite");
  }
}

std::vector<std::string> loss_logs() {
  std::string long_log;
  for (int i = 0; i < 1'000; ++i) {
    long_log += "{\"step\":" + std::to_string(i) + ",\"loss\":0.5}\n";
  }
  return {"{\"step\":0,\"loss\":2.3,\"seconds\":0.1}\n{\"step\":1,\"loss\":1}\n", long_log};
}

void read_timeline(const std::filesystem::path& path) {
  std::vector<tools::page::PageRun> runs(1);
  runs[0].file.rows.emplace_back().step_seconds = 1;
  runs[0].timeline = tools::page::read_step_timeline(path, "report");
  const tools::page::StepTimeline& timeline = *runs[0].timeline;
  expect(timeline.seconds > 0 && std::isfinite(timeline.seconds), "a step takes no time");
  for (const tools::page::RankLanes& rank : timeline.ranks) {
    for (const tools::page::Lane& lane : rank.lanes) {
      for (const tools::page::LaneSpan& span : lane.spans) {
        expect(span.begin >= 0 && span.begin <= span.end && span.end <= timeline.seconds,
               "a span lies outside of its step");
      }
    }
  }
  expect_drawable(tools::page::make_page(runs));
}

std::vector<std::string> timelines() {
  return {R"({"displayTimeUnit": "ns", "traceEvents": [
  {"ph": "M", "name": "process_name", "pid": 0, "tid": 1, "args": {"name": "rank 0 on cpu:0"}},
  {"ph": "M", "name": "thread_name", "pid": 0, "tid": 1, "args": {"name": "steps"}},
  {"ph": "M", "name": "thread_name", "pid": 0, "tid": 2, "args": {"name": "compute, level 2"}},
  {"ph": "M", "name": "thread_name", "pid": 1, "tid": 3, "args": {"name": "comm"}},
  {"ph": "X", "cat": "step", "name": "step", "pid": 0, "tid": 1, "ts": 1000.5, "dur": 900,
   "args": {"sequence": 0}},
  {"ph": "X", "cat": "step", "name": "step", "pid": 1, "tid": 4, "ts": 1010, "dur": 900,
   "args": {"sequence": 0}},
  {"ph": "X", "cat": "forward", "name": "forward", "pid": 0, "tid": 2, "ts": 1001, "dur": 300},
  {"ph": "X", "cat": "communication", "name": "all-reduce", "pid": 1, "tid": 3, "ts": 1400,
   "dur": 200, "args": {"sequence": 0}},
  {"ph": "C", "name": "bytes", "pid": 0, "ts": 1002, "args": {"bytes": 5}}]})"};
}

}  // namespace lockstep::testing
