#include "tools/collectives/all_reduce_table.h"

#include <fmt/format.h>

namespace lockstep::tools {

AllReduceTable::AllReduceTable(const AllReduceBench& bench)
    : flags_(bench.flags), out_(flags_.json_path == "-" ? stderr : stdout) {
  const std::vector<std::size_t> sizes = list_sizes(flags_);
  fmt::print(out_,
             "# {} {} minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} "
             "validation: {}\n# {}\n#\n",
             flags_.ranks == "threads" ? "nThread" : "nProcess", flags_.num_ranks, sizes.front(),
             sizes.back(), describe_step(flags_), flags_.warm_up, flags_.iterations,
             flags_.checks() ? 1 : 0, bench.who);
  fmt::print(out_, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>16}  {:>10}  {:>7}  {:>7}  {:>6}\n", "size",
             "count", "type", "redop", "plan", "time", "algbw", "busbw", "#wrong");
  fmt::print(out_, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>16}  {:>10}  {:>7}  {:>7}\n", "(B)",
             "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)");
  std::fflush(out_);
}

void AllReduceTable::add(const AllReduceRow& row) {
  const AllReduceTime& time = row.in_place;
  const Bandwidth rate = bandwidth(row.num_bytes, time, flags_.num_ranks);
  fmt::print(out_, "  {:>10}  {:>12}  {:>8}  {:>6}  {:>16}  {:>10.2f}  {:>7.2f}  {:>7.2f}  {:>6}\n",
             row.num_bytes, row.num_bytes / size_of(flags_.dtype()), flags_.datatype, flags_.op,
             row.plan, time.seconds * 1e6, rate.algbw, rate.busbw,
             flags_.checks() ? std::to_string(time.num_wrong) : "N/A");
  std::fflush(out_);
  ++num_rows_;
  total_busbw_ += rate.busbw;
  total_wrong_ += time.num_wrong;
}

void AllReduceTable::finish() {
  fmt::print(out_, "# Out of bounds values : {} {}\n", total_wrong_,
             total_wrong_ == 0 ? "OK" : "FAILED");
  fmt::print(out_, "# Avg bus bandwidth    : {:.4f}\n",
             total_busbw_ / static_cast<double>(num_rows_));
}

}  // namespace lockstep::tools
