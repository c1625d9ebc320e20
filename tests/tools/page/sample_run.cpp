#include "tests/tools/page/sample_run.h"

#include "tests/support/temp_folder.h"

namespace lockstep::testing {

using Json = nlohmann::ordered_json;

namespace {

Json breakdown(double forward, double backward, double optimizer, double exposed) {
  return {{"data", 0.0},
          {"copy", 0.0},
          {"forward", forward},
          {"backward", backward},
          {"exposed_comm", exposed},
          {"optimizer", optimizer},
          {"wait", 0.0},
          {"host", 0.0},
          {"unattributed", 0.0}};
}

void compare_with_single(Json& row, double speedup, double ideal) {
  row["speedup"] = speedup;
  row["ideal_speedup"] = ideal;
  row["efficiency"] = speedup / ideal;
  row["verdict"] = {{"equal", true}};
}

}  // namespace

Json sample_row(const std::string& mode, int devices, double step_seconds) {
  return {{"mode", mode},
          {"devices", devices},
          {"physical_devices", 1},
          {"virtual", devices > 1},
          {"threads_per_device", 1},
          {"batch", 64},
          {"contended", false},
          {"kind", "measured"},
          {"epoch_seconds", {10 * step_seconds, 10 * step_seconds}},
          {"median_epoch_seconds", 10 * step_seconds},
          {"step_seconds", step_seconds},
          {"busy_fraction", std::vector<double>(static_cast<std::size_t>(devices), 0.9)},
          {"comm_bytes_per_device_per_step", devices > 1 ? 1048576 : 0},
          {"peak_bytes", std::vector<double>(static_cast<std::size_t>(devices), 3145728.0)},
          {"final_loss", 0.25},
          {"test_accuracy", 0.9},
          {"epoch_accuracy", {0.7, 0.9}}};
}

Json sample_run() {
  Json single = sample_row("single", 1, 0.010);
  compare_with_single(single, 1, 1);
  single["breakdown_seconds"] = breakdown(0.003, 0.006, 0.001, 0);
  Json one = sample_row("ddp", 1, 0.0101);
  compare_with_single(one, 0.99, 1);
  one["breakdown_seconds"] = breakdown(0.003, 0.0061, 0.001, 0);
  Json two = sample_row("ddp", 2, 0.006);
  compare_with_single(two, 1.67, 2);
  two["breakdown_seconds"] = breakdown(0.0015, 0.003, 0.001, 0.0005);
  two["overlapped_comm_seconds"] = 0.0002;
  return {{"schema", "lockstep.run/1"},
          {"date", "2026-01-31T23:59:59Z"},
          {"command", {"lockstep", "compare", "--model", "mlp:64-16-10", "--json", "out.json"}},
          {"host",
           {{"cpu", "A processor"},
            {"cores", 4},
            {"memory_bytes", 8589934592},
            {"os", "An OS"},
            {"gpus", Json::array()},
            {"version", "0.2.0"},
            {"build", "Release"}}},
          {"config",
           {{"device", "cpu"},
            {"modes", "ddp"},
            {"batch", 64},
            {"per_device_batch", nullptr},
            {"epochs", 2},
            {"dataset", "digits"},
            {"model", "mlp:64-16-10"},
            {"log", nullptr},
            {"trace", nullptr}}},
          {"rows", {single, one, two}},
          {"workload",
           {{"batch", 64},
            {"input_bytes_per_row", 256},
            {"host_seconds_per_op", 1e-6},
            {"optimizer_seconds", 0.001},
            {"layers",
             {{{"name", "0"},
               {"forward_seconds", 0.003},
               {"backward_seconds", 0.006},
               {"parameter_bytes", 1048576},
               {"output_bytes", 4096}}}},
            {"rows_per_epoch", 640}}}};
}

std::string sample_trace() {
  Json events = Json::array();
  const auto name = [&](const char* what, int process, int thread, const char* text) {
    events.push_back({{"ph", "M"},
                      {"name", what},
                      {"pid", process},
                      {"tid", thread},
                      {"args", {{"name", text}}}});
  };
  const auto span = [&](int process, int thread, const char* category, double ts, double dur,
                        int step) {
    Json event{{"ph", "X"},     {"cat", category}, {"name", category}, {"pid", process},
               {"tid", thread}, {"ts", ts},        {"dur", dur},       {"args", Json::object()}};
    if (step >= 0) event["args"]["sequence"] = step;
    events.push_back(event);
  };
  for (const int rank : {0, 1}) {
    const int first = 1 + 10 * rank;
    name("process_name", rank, first, rank == 0 ? "rank 0 on cpu:0" : "rank 1 on cpu:1");
    name("thread_name", rank, first, "steps");
    name("thread_name", rank, first + 1, "compute");
    name("thread_name", rank, first + 2, "compute, level 2");
    name("thread_name", rank, first + 3, "comm");
    name("thread_name", rank, first + 4, "compute ops");
    for (const int step : {0, 1}) {
      const double begin = 10000.0 * step + 100 * rank;
      span(rank, first, "step", begin, step == 0 ? 9000 : 6000, step);
      span(rank, first + 1, "forward", begin, 2000, -1);
      span(rank, first + 1, "backward", begin + 2000, 3000, -1);
      span(rank, first + 2, "wait", begin + 4000, 500, -1);
      span(rank, first + 4, "op", begin + 2990, 20, -1);
      events.back()["name"] = "launch bucket";
      span(rank, first + 3, "communication", begin + 3000, 1500, 2 * step + 1);
      events.back()["name"] = "all_reduce";
      span(rank, first + 4, "op", begin, 1000, -1);
    }
  }
  return Json({{"displayTimeUnit", "ns"}, {"traceEvents", events}}).dump();
}

Json json_of_page(const std::string& page) {
  const std::string begin = "<script id=\"runs\" type=\"application/json\">";
  const std::size_t at = page.find(begin) + begin.size();
  return Json::parse(page.substr(at, page.find("</script>", at) - at));
}

void write_json_file(const std::filesystem::path& path, const Json& json) {
  write_text(path, json.dump(2) + "\n");
}

}  // namespace lockstep::testing
