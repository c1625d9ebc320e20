#include "tools/collectives/nccl_tests_table.h"

#include <fmt/format.h>

namespace lockstep::tools {
namespace {

constexpr const char* kName = "lockstep bench all-reduce";

// What stands at the left of every line, then twice what a placement has.
void print_heading(std::FILE* out, const char* size, const char* count, const char* type,
                   const char* op, const char* root, const char* time, const char* rate,
                   const char* bus, const char* wrong) {
  fmt::print(out, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", size, count, type, op, root);
  for (int i = 0; i < 2; ++i) {
    fmt::print(out, "  {:>7}  {:>6}  {:>6}  {:>6}", time, rate, bus, wrong);
  }
  fmt::print(out, " \n");
}

}  // namespace

std::string in_columns(double value, std::size_t width) {
  for (const int digits : {2, 1, 0}) {
    std::string text = fmt::format("{:.{}f}", value, digits);
    if (text.size() <= width) return fmt::format("{:>{}}", text, width);
  }
  return fmt::format("{:>{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

std::string address_of(Device device) {
  return lockstep::to_string(device);
}

NcclTestsTable::NcclTestsTable(const AllReduceBench& bench)
    : flags_(bench.flags), out_(flags_.json_path == "-" ? stderr : stdout) {
  const std::vector<std::size_t> sizes = list_sizes(flags_);
  fmt::print(out_, "# Collective test starting: {}\n", kName);
  fmt::print(out_,
             "# nThread 1 nGpus {} minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} agg "
             "iters: 1 validation: {} graph: 0 unalign: 0\n#\n",
             flags_.gpus_per_process(), sizes.front(), sizes.back(), describe_step(flags_),
             flags_.warm_up, flags_.iterations, flags_.checks() ? 1 : 0);
  fmt::print(out_, "# Using devices\n");
  int rank = 0;
  for (const RankPlace& place : bench.places) {
    fmt::print(out_, "#  Rank {:>2} Group {:>2} Pid {:>6} on {:>10} device {:>2} [{}] {}\n", rank++,
               0, place.process, place.host, place.device.index, address_of(place.device),
               lockstep::to_string(place.device.type));
  }
  fmt::print(out_, "# {}\n# out-of-place: a copy, then the all-reduce, which works in place\n#\n",
             bench.who);
  fmt::print(out_, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}           {:<34} {:<18}\n", "", "", "",
             "", "", "out-of-place", "in-place");
  print_heading(out_, "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong");
  print_heading(out_, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "");
  std::fflush(out_);
}

std::string NcclTestsTable::columns_of(std::size_t num_bytes, const AllReduceTime& time) {
  const Bandwidth rate = bandwidth(num_bytes, time, flags_.num_ranks);
  ++num_times_;
  total_busbw_ += rate.busbw;
  total_wrong_ += time.num_wrong;
  const std::string wrong =
      flags_.checks() ? fmt::format("{:g}", static_cast<double>(time.num_wrong)) : "N/A";
  return fmt::format("  {}  {}  {}  {:>6}", in_columns(time.seconds * 1e6, 7),
                     in_columns(rate.algbw, 6), in_columns(rate.busbw, 6), wrong);
}

void NcclTestsTable::add(const AllReduceRow& row) {
  const std::string out_of_place = columns_of(row.num_bytes, row.out_of_place);
  const std::string in_place = columns_of(row.num_bytes, row.in_place);
  fmt::print(out_, "{:>12}  {:>12}  {:>8}  {:>6}  {:>6}{}{}\n", row.num_bytes,
             row.num_bytes / size_of(flags_.dtype()), flags_.datatype, flags_.op, -1, out_of_place,
             in_place);
  std::fflush(out_);
}

void NcclTestsTable::finish() {
  fmt::print(out_, "# {:<20} : {} {}\n", "Out of bounds values", total_wrong_,
             total_wrong_ == 0 ? "OK" : "FAILED");
  fmt::print(out_, "# {:<20} : {:g} \n", "Avg bus bandwidth",
             total_busbw_ / static_cast<double>(num_times_));
  fmt::print(out_, "#\n# Collective test concluded: {}\n#\n", kName);
}

}  // namespace lockstep::tools
