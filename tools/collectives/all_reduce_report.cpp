#include "tools/collectives/all_reduce_report.h"

#include "tools/collectives/all_reduce_file.h"
#include "tools/collectives/all_reduce_table.h"
#include "tools/collectives/nccl_tests_file.h"
#include "tools/collectives/nccl_tests_table.h"

namespace lockstep::tools {

Bandwidth bandwidth(std::size_t num_bytes, const AllReduceTime& time, int num_ranks) {
  const double algbw = static_cast<double>(num_bytes) / time.seconds * 1e-9;
  return {algbw, algbw * 2 * (num_ranks - 1) / num_ranks};
}

std::vector<std::unique_ptr<AllReduceReport>> make_reports(const AllReduceBench& bench) {
  std::vector<std::unique_ptr<AllReduceReport>> reports;
  if (!bench.flags.output_file.empty()) reports.push_back(std::make_unique<NcclTestsFile>(bench));
  if (bench.flags.is_nccl_tests()) {
    reports.push_back(std::make_unique<NcclTestsTable>(bench));
  } else {
    reports.push_back(std::make_unique<AllReduceTable>(bench));
  }
  if (!bench.flags.json_path.empty()) reports.push_back(std::make_unique<AllReduceFile>(bench));
  return reports;
}

}  // namespace lockstep::tools
