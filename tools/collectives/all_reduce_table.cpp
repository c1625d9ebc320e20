#include "tools/collectives/all_reduce_table.h"

#include <fmt/format.h>

#include "engine/core/error.h"
#include "tools/report/file_head.h"
#include "tools/report/run_file.h"

namespace lockstep::tools {

AllReduceTable::AllReduceTable(const AllReduceFlags& flags, const std::vector<std::string>& command,
                               const std::string& who)
    : flags_(flags), command_(command), out_(flags.json_path == "-" ? stderr : stdout) {
  const std::vector<std::size_t> sizes = list_sizes(flags);
  fmt::print(out_,
             "# {} {} minBytes {} maxBytes {} step: {}(factor) warmup iters: {} iters: {} "
             "validation: {}\n# {}\n#\n",
             flags.ranks == "threads" ? "nThread" : "nProcess", flags.num_ranks, sizes.front(),
             sizes.back(), flags.factor, flags.warm_up, flags.iterations, flags.checks() ? 1 : 0,
             who);
  fmt::print(out_, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>16}  {:>10}  {:>7}  {:>7}  {:>6}\n", "size",
             "count", "type", "redop", "plan", "time", "algbw", "busbw", "#wrong");
  fmt::print(out_, "# {:>10}  {:>12}  {:>8}  {:>6}  {:>16}  {:>10}  {:>7}  {:>7}\n", "(B)",
             "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)");
  std::fflush(out_);
}

void AllReduceTable::add(std::size_t num_bytes, std::string_view plan, DeviceType device,
                         const std::string& transport, const AllReduceTime& time) {
  const double algbw = static_cast<double>(num_bytes) / time.seconds * 1e-9;
  const double busbw = algbw * 2 * (flags_.num_ranks - 1) / flags_.num_ranks;
  fmt::print(out_, "  {:>10}  {:>12}  {:>8}  {:>6}  {:>16}  {:>10.2f}  {:>7.2f}  {:>7.2f}  {:>6}\n",
             num_bytes, num_bytes / size_of(flags_.dtype()), flags_.datatype, flags_.op, plan,
             time.seconds * 1e6, algbw, busbw,
             flags_.checks() ? std::to_string(time.num_wrong) : "N/A");
  std::fflush(out_);
  total_busbw_ += busbw;
  total_wrong_ += time.num_wrong;
  rows_.push_back({{"bytes", num_bytes},
                   {"type", flags_.datatype},
                   {"redop", flags_.op},
                   {"plan", plan},
                   {"device", lockstep::to_string(device)},
                   {"transport", transport},
                   {"comm", flags_.comm},
                   {"ranks", flags_.num_ranks},
                   {"iterations", flags_.iterations},
                   {"warmup_iterations", flags_.warm_up},
                   {"time_us", time.seconds * 1e6},
                   {"algbw_gb_per_s", algbw},
                   {"busbw_gb_per_s", busbw},
                   {"wrong", flags_.checks() ? nlohmann::json(time.num_wrong) : nlohmann::json()}});
}

void AllReduceTable::finish() {
  fmt::print(out_, "# Out of bounds values : {} {}\n", total_wrong_,
             total_wrong_ == 0 ? "OK" : "FAILED");
  fmt::print(out_, "# Avg bus bandwidth    : {:.4f}\n",
             total_busbw_ / static_cast<double>(rows_.size()));
  if (!flags_.json_path.empty()) {
    nlohmann::ordered_json json = file_head("lockstep.bench-all-reduce/1", command_);
    json["rows"] = rows_;
    write_json(flags_.json_path, json);
  }
  require(total_wrong_ == 0, ErrorCode::Numeric, "bench", "{} values are wrong", total_wrong_);
}

std::string transport_in(const std::string& description) {
  const std::string over = " over ";
  const std::size_t found = description.find(over);
  if (found == std::string::npos) return description;
  const std::string name = description.substr(found + over.size());
  return name.substr(0, name.find(", "));  // a link's name holds a comma
}

}  // namespace lockstep::tools
