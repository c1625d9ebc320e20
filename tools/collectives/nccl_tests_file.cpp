#include "tools/collectives/nccl_tests_file.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>

#include "engine/launch/process.h"
#include "tools/cli/numbers.h"
#include "tools/collectives/nccl_tests_table.h"
#include "tools/report/run_file.h"

namespace lockstep::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string now() {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr)));
}

// Truth values are texts there.
const char* text_of(bool value) {
  return value ? "true" : "false";
}

std::string free_path(const std::string& asked) {
  std::string path = asked;
  for (int i = 0; std::filesystem::exists(path); ++i) path = fmt::format("{}.{}", asked, i);
  return path;
}

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

Json describe_devices(const std::vector<RankPlace>& places) {
  Json devices = Json::array();
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const RankPlace& place = places[rank];
    devices.push_back({{"rank", rank},
                       {"group", 0},
                       {"pid", place.process},
                       {"hostname", place.host},
                       {"device", place.device.index},
                       {"device_hex", address_of(place.device)},
                       {"device_info", lockstep::to_string(place.device.type)}});
  }
  return devices;
}

Json describe_config(const AllReduceBench& bench) {
  const AllReduceFlags& flags = bench.flags;
  const std::vector<std::size_t> sizes = list_sizes(flags);
  Json config{{"nthreads", 1},
              {"ngpus", flags.gpus_per_process()},
              {"minimum_bytes", sizes.front()},
              {"maximum_bytes", parse_bytes("-e", flags.last_bytes)}};
  if (flags.step_bytes.empty()) {
    config["step_factor"] = flags.factor;
  } else {
    config["step_bytes"] = parse_bytes("-i", flags.step_bytes);
  }
  config["warmup_iters"] = flags.warm_up;
  config["iterations"] = flags.iterations;
  config["aggregated_iterations"] = 1;
  config["validation"] = flags.checks() ? 1 : 0;
  config["graph"] = 0;
  config["blocking_collectives"] = text_of(true);  // each is waited for
  config["per_iter_timing"] = text_of(false);
  config["per_iter_skip"] = 0;
  config["parallel_init"] = text_of(false);
  config["devices"] = describe_devices(bench.places);
  return config;
}

}  // namespace

NcclTestsFile::NcclTestsFile(const AllReduceBench& bench)
    : flags_(bench.flags), path_(free_path(flags_.output_file)) {
  fmt::print(flags_.json_path == "-" ? stderr : stdout, "# Writing JSON output to {}\n", path_);
  json_ = {{"version", 3},
           {"start_time", now()},
           {"args", bench.command},
           {"env", relevant_environment()},
           {"nccl_version", nullptr},  // who did it stands in device_info and args
           {"config", describe_config(bench)}};
}

Json NcclTestsFile::describe(std::size_t num_bytes, const AllReduceTime& time) {
  const Bandwidth rate = bandwidth(num_bytes, time, flags_.num_ranks);
  ++num_times_;
  total_busbw_ += rate.busbw;
  total_wrong_ += time.num_wrong;
  return {{"time", time.seconds * 1e6},
          {"alg_bw", rate.algbw},
          {"bus_bw", rate.busbw},
          {"nwrong", flags_.checks() ? Json(static_cast<double>(time.num_wrong)) : Json()}};
}

void NcclTestsFile::add(const AllReduceRow& row) {
  const Json out_of_place = describe(row.num_bytes, row.out_of_place);
  const Json in_place = describe(row.num_bytes, row.in_place);
  results_.push_back({{"size", row.num_bytes},
                      {"count", row.num_bytes / size_of(flags_.dtype())},
                      {"type", flags_.datatype},
                      {"redop", flags_.op},
                      {"root", fmt::format("{:>6}", -1)},
                      {"out_of_place", out_of_place},
                      {"in_place", in_place},
                      {"actual_iterations", flags_.iterations},
                      {"experiment_name", ""}});
}

void NcclTestsFile::finish() {
  json_["results"] = results_;
  json_["out_of_bounds"] = {{"count", total_wrong_}, {"okay", text_of(total_wrong_ == 0)}};
  json_["average_bus_bandwidth"] = {{"bandwidth", total_busbw_ / static_cast<double>(num_times_)},
                                    {"okay", "unchecked"}};
  json_["errors"] = Json::array();
  json_["end_time"] = now();
  write_json(path_, json_);
}

}  // namespace lockstep::tools
