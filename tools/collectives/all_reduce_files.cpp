#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "engine/launch/process.h"
#include "tools/cli/numbers.h"
#include "tools/collectives/all_reduce_report.h"
#include "tools/report/host_info.h"
#include "tools/report/run_file.h"

namespace lockstep::tools {
namespace {

using Json = nlohmann::ordered_json;

// nccl-tests writes all variables; these are the ones that bear on the figures, without secrets.
Json relevant_environment() {
  Json list = Json::array();
  for (const auto& [name, value] : launch::current_environment()) {
    bool is_relevant = false;
    for (const char* start : {"CUDA_", "NCCL_", "OMP_", "LOCKSTEP_"}) {
      is_relevant = is_relevant || name.starts_with(start);
    }
    if (is_relevant && !name.starts_with("LOCKSTEP_TOKEN")) list.push_back(name + "=" + value);
  }
  return list;
}

Json devices_json(const std::vector<RankPlace>& places) {
  Json devices = Json::array();
  for (const RankPlace& place : places) {
    devices.push_back({{"rank", devices.size()},
                       {"group", 0},
                       {"pid", place.process},
                       {"hostname", place.host},
                       {"device", place.device.index},
                       {"device_hex", lockstep::to_string(place.device)},
                       {"device_info", lockstep::to_string(place.device.type)}});
  }
  return devices;
}

// Truth values are texts in nccl-tests' file.
Json config_json(const AllReduceBench& bench) {
  const AllReduceFlags& flags = bench.flags;
  Json config{{"nthreads", 1},
              {"ngpus", flags.gpus_per_process()},
              {"minimum_bytes", list_sizes(flags).front()},
              {"maximum_bytes", parse_bytes("-e", flags.last_bytes)}};
  if (flags.step_bytes.empty()) {
    config["step_factor"] = flags.factor;
  } else {
    config["step_bytes"] = parse_bytes("-i", flags.step_bytes);
  }
  config.update({{"warmup_iters", flags.warm_up},
                 {"iterations", flags.iterations},
                 {"aggregated_iterations", 1},
                 {"validation", flags.checks() ? 1 : 0},
                 {"graph", 0},
                 {"blocking_collectives", "true"},  // each is waited for
                 {"per_iter_timing", "false"},
                 {"per_iter_skip", 0},
                 {"parallel_init", "false"},
                 {"devices", devices_json(bench.places)}});
  return config;
}

Json wrong_json(const AllReduceFlags& flags, const Json& number) {
  return flags.checks() ? number : Json();
}

}  // namespace

void write_all_reduce_file(const AllReduceBench& bench, const std::vector<AllReduceRow>& rows) {
  const AllReduceFlags& flags = bench.flags;
  Json json = file_head("lockstep.bench-all-reduce/1", bench.command);
  json["rows"] = Json::array();
  for (const AllReduceRow& row : rows) {
    const Bandwidth rate = bandwidth(row.num_bytes, row.in_place, flags.num_ranks);
    json["rows"].push_back({{"bytes", row.num_bytes},
                            {"type", flags.datatype},
                            {"redop", flags.op},
                            {"plan", row.plan},
                            {"device", lockstep::to_string(row.device)},
                            {"transport", row.transport},
                            {"comm", flags.comm},
                            {"ranks", flags.num_ranks},
                            {"iterations", flags.iterations},
                            {"warmup_iterations", flags.warm_up},
                            {"time_us", row.in_place.seconds * 1e6},
                            {"algbw_gb_per_s", rate.algbw},
                            {"busbw_gb_per_s", rate.busbw},
                            {"wrong", wrong_json(flags, row.in_place.num_wrong)}});
  }
  write_json(flags.json_path, json);
}

void write_nccl_tests_file(const AllReduceBench& bench, const std::vector<AllReduceRow>& rows,
                           const std::string& path, const std::string& start_time) {
  const AllReduceFlags& flags = bench.flags;
  Json results = Json::array();
  for (const AllReduceRow& row : rows) {
    const auto time_json = [&](const AllReduceTime& time) -> Json {
      const Bandwidth rate = bandwidth(row.num_bytes, time, flags.num_ranks);
      return {{"time", time.seconds * 1e6},
              {"alg_bw", rate.algbw},
              {"bus_bw", rate.busbw},
              {"nwrong", wrong_json(flags, static_cast<double>(time.num_wrong))}};
    };
    results.push_back({{"size", row.num_bytes},
                       {"count", row.num_bytes / size_of(flags.dtype())},
                       {"type", flags.datatype},
                       {"redop", flags.op},
                       {"root", "    -1"},
                       {"out_of_place", time_json(row.out_of_place)},
                       {"in_place", time_json(row.in_place)},
                       {"actual_iterations", flags.iterations},
                       {"experiment_name", ""}});
  }
  const AllReduceTotals totals = totals_of(rows, flags, true);
  const char* okay = totals.num_wrong == 0 ? "true" : "false";
  write_json(
      path,
      {{"version", 3},
       {"start_time", start_time},
       {"args", bench.command},
       {"env", relevant_environment()},
       {"nccl_version", nullptr},  // device_info and args name the library
       {"config", config_json(bench)},
       {"results", std::move(results)},
       {"out_of_bounds", {{"count", totals.num_wrong}, {"okay", okay}}},
       {"average_bus_bandwidth", {{"bandwidth", totals.mean_busbw}, {"okay", "unchecked"}}},
       {"errors", Json::array()},
       {"end_time", fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr)))}});
}

}  // namespace lockstep::tools
