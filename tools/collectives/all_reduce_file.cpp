#include "tools/collectives/all_reduce_file.h"

#include "tools/report/file_head.h"
#include "tools/report/run_file.h"

namespace lockstep::tools {

void AllReduceFile::add(const AllReduceRow& row) {
  const AllReduceFlags& flags = bench_.flags;
  const AllReduceTime& time = row.in_place;
  const Bandwidth rate = bandwidth(row.num_bytes, time, flags.num_ranks);
  rows_.push_back({{"bytes", row.num_bytes},
                   {"type", flags.datatype},
                   {"redop", flags.op},
                   {"plan", row.plan},
                   {"device", lockstep::to_string(row.device)},
                   {"transport", row.transport},
                   {"comm", flags.comm},
                   {"ranks", flags.num_ranks},
                   {"iterations", flags.iterations},
                   {"warmup_iterations", flags.warm_up},
                   {"time_us", time.seconds * 1e6},
                   {"algbw_gb_per_s", rate.algbw},
                   {"busbw_gb_per_s", rate.busbw},
                   {"wrong", flags.checks() ? nlohmann::json(time.num_wrong) : nlohmann::json()}});
}

void AllReduceFile::finish() {
  nlohmann::ordered_json json = file_head("lockstep.bench-all-reduce/1", bench_.command);
  json["rows"] = rows_;
  write_json(bench_.flags.json_path, json);
}

}  // namespace lockstep::tools
