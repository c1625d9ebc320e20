#include "tools/collectives/all_reduce_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/launch/process.h"
#include "tools/cli/numbers.h"
#include "tools/report/host_info.h"
#include "tools/report/run_file.h"

namespace lockstep::tools {

namespace {

constexpr const char* kName = "lockstep bench all-reduce";

std::string free_path(const std::string& asked) {
  std::string path = asked;
  if (asked.empty()) return path;
  for (int i = 0; std::filesystem::exists(path); ++i) path = fmt::format("{}.{}", asked, i);
  return path;
}

// Prints a row in the columns of nccl-tests.
void print_heading(std::FILE* out, const char* size, const char* count, const char* type,
                   const char* op, const char* root, const char* time, const char* rate,
                   const char* bus, const char* wrong) {
  fmt::print(out, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", size, count, type, op, root);
  for (int i = 0; i < 2; ++i) {
    fmt::print(out, "  {:>7}  {:>6}  {:>6}  {:>6}", time, rate, bus, wrong);
  }
  fmt::print(out, " \n");
}

// Fits a number into `width` characters: with two digits after the point, with one, with none, or
// as a power of ten, whichever fits first.
std::string in_columns(double value, std::size_t width) {
  for (const int digits : {2, 1, 0}) {
    std::string text = fmt::format("{:.{}f}", value, digits);
    if (text.size() <= width) return fmt::format("{:>{}}", text, width);
  }
  return fmt::format("{:>{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

}  // namespace

Bandwidth bandwidth(std::size_t num_bytes, const AllReduceTime& time, int num_ranks) {
  const double algbw = static_cast<double>(num_bytes) / time.seconds * 1e-9;
  return {algbw, algbw * 2 * (num_ranks - 1) / num_ranks};
}

AllReduceTotals totals_of(const std::vector<AllReduceRow>& rows, const AllReduceFlags& flags,
                          bool out_of_place) {
  AllReduceTotals totals;
  double sum = 0;
  for (const AllReduceRow& row : rows) {
    totals.num_wrong += row.in_place.num_wrong;
    sum += bandwidth(row.num_bytes, row.in_place, flags.num_ranks).busbw;
    if (!out_of_place) continue;
    totals.num_wrong += row.out_of_place.num_wrong;
    sum += bandwidth(row.num_bytes, row.out_of_place, flags.num_ranks).busbw;
  }
  totals.mean_busbw = sum / static_cast<double>(rows.size() * (out_of_place ? 2 : 1));
  return totals;
}

AllReduceReport::AllReduceReport(const AllReduceBench& bench)
    : bench_(bench),
      flags_(bench.flags),
      out_(flags_.json_path == "-" ? stderr : stdout),
      start_time_(fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr)))),
      nccl_tests_path_(free_path(flags_.output_file)) {
  if (!nccl_tests_path_.empty()) {
    fmt::print(out_, "# Writing JSON output to {}\n", nccl_tests_path_);
  }
  flags_.is_nccl_tests() ? print_nccl_tests_head() : print_lockstep_head();
  std::fflush(out_);
}

void AllReduceReport::print_lockstep_head() const {
  const std::vector<std::size_t> sizes = list_sizes(flags_);
  fmt::print(out_,
             "# {} {} minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} "
             "validation: {}\n# {}\n#\n",
             flags_.ranks == "threads" ? "nThread" : "nProcess", flags_.num_ranks, sizes.front(),
             sizes.back(), describe_step(flags_), flags_.warm_up, flags_.iterations,
             flags_.checks() ? 1 : 0, bench_.who);
  fmt::print(out_, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>16}  {:>10}  {:>7}  {:>7}  {:>6}\n", "size",
             "count", "type", "redop", "plan", "time", "algbw", "busbw", "#wrong");
  fmt::print(out_, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>16}  {:>10}  {:>7}  {:>7}\n", "(B)",
             "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)");
}

void AllReduceReport::print_nccl_tests_head() const {
  const std::vector<std::size_t> sizes = list_sizes(flags_);
  fmt::print(out_, "# Collective test starting: {}\n", kName);
  fmt::print(out_,
             "# nThread 1 nGpus {} minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} agg "
             "iters: 1 validation: {} graph: 0 unalign: 0\n#\n",
             flags_.gpus_per_process(), sizes.front(), sizes.back(), describe_step(flags_),
             flags_.warm_up, flags_.iterations, flags_.checks() ? 1 : 0);
  fmt::print(out_, "# Using devices\n");
  int rank = 0;
  for (const RankPlace& place : bench_.places) {
    fmt::print(out_, "#  Rank {:>2} Group {:>2} Pid {:>6} on {:>10} device {:>2} [{}] {}\n", rank++,
               0, place.process, place.host, place.device.index, lockstep::to_string(place.device),
               lockstep::to_string(place.device.type));
  }
  fmt::print(out_, "# {}\n# out-of-place: a copy, then the all-reduce, which works in place\n#\n",
             bench_.who);
  fmt::print(out_, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}           {:<34} {:<18}\n", "", "", "",
             "", "", "out-of-place", "in-place");
  print_heading(out_, "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong");
  print_heading(out_, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "");
}

std::string AllReduceReport::nccl_tests_columns(std::size_t num_bytes,
                                                const AllReduceTime& time) const {
  const Bandwidth rate = bandwidth(num_bytes, time, flags_.num_ranks);
  const std::string wrong =
      flags_.checks() ? fmt::format("{:g}", static_cast<double>(time.num_wrong)) : "N/A";
  return fmt::format("  {}  {}  {}  {:>6}", in_columns(time.seconds * 1e6, 7),
                     in_columns(rate.algbw, 6), in_columns(rate.busbw, 6), wrong);
}

void AllReduceReport::add(const AllReduceRow& row) {
  rows_.push_back(row);
  if (flags_.is_nccl_tests()) {
    fmt::print(out_, "{:>12}  {:>12}  {:>8}  {:>6}  {:>6}{}{}\n", row.num_bytes, row.count,
               row.datatype, row.op, -1, nccl_tests_columns(row.num_bytes, row.out_of_place),
               nccl_tests_columns(row.num_bytes, row.in_place));
  } else {
    const Bandwidth rate = bandwidth(row.num_bytes, row.in_place, flags_.num_ranks);
    fmt::print(
        out_, "  {:>10}  {:>12}  {:>8}  {:>6}  {:>16}  {:>10.2f}  {:>7.2f}  {:>7.2f}  {:>6}\n",
        row.num_bytes, row.count, row.datatype, row.op, row.plan, row.in_place.seconds * 1e6,
        rate.algbw, rate.busbw, flags_.checks() ? std::to_string(row.in_place.num_wrong) : "N/A");
  }
  std::fflush(out_);
}

void AllReduceReport::finish() const {
  const AllReduceTotals totals = totals_of(rows_, flags_, flags_.is_nccl_tests());
  const char* verdict = totals.num_wrong == 0 ? "OK" : "FAILED";
  fmt::print(out_, "# Out of bounds values : {} {}\n", totals.num_wrong, verdict);
  if (flags_.is_nccl_tests()) {
    fmt::print(out_, "# Avg bus bandwidth    : {:g} \n#\n# Collective test concluded: {}\n#\n",
               totals.mean_busbw, kName);
  } else {
    fmt::print(out_, "# Avg bus bandwidth    : {:.4f}\n", totals.mean_busbw);
  }
  if (!nccl_tests_path_.empty()) {
    write_nccl_tests_file(bench_, rows_, nccl_tests_path_, start_time_);
  }
  if (!flags_.json_path.empty()) write_all_reduce_file(bench_, rows_);
}

namespace {

using Json = nlohmann::ordered_json;

// nccl-tests writes all variables; these are the ones that affect the figures, without secrets.
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

// nccl-tests' file has strings for booleans.
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
                 {"blocking_collectives", "true"},  // the benchmark waits for each one
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
                            {"type", row.datatype},
                            {"redop", row.op},
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
                       {"count", row.count},
                       {"type", row.datatype},
                       {"redop", row.op},
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
