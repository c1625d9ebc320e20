// What a rank tells the others in a check, and how all of them hear it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/data/data_loader.h"
#include "tools/training/task.h"
#include "tools/verdict/reference_gradient.h"

namespace lockstep::tools {

// The rows that a rank trained on.
struct RowsReport {
  std::int64_t offset = 0;  // in the global batch
  std::int64_t num_rows = 0;
  std::int64_t num_global_rows = 0;  // as the rank believes
  // The first of its rows that is not the global batch's, and whether its label or its features
  // differ; kAllRight where none does.
  std::int64_t wrong_row = kAllRight;
  std::int64_t wrong_label = 0;
  static constexpr std::int64_t kAllRight = -1;
};

// Compares a rank's batch with the rows of the global batch that it says it has.
RowsReport report_rows(const TrainingTask& task, const data::Batch& batch,
                       const std::vector<std::size_t>& global_rows);

struct CheckReport {
  RowsReport rows;
  std::vector<std::uint64_t> digests_before;  // of the tensors that replicas share, before the step
  std::vector<std::uint64_t> digests_after;   // and after it
  std::vector<double> gradient_errors;        // by parameter
};

// 64 bits that stand for all bits of each tensor.
std::vector<std::uint64_t> digests(const KeptTensors& tensors);

// The reports of all ranks, by rank, from those of the ranks that this thread drives. Where there
// is a communicator, the thread drives one rank, and every rank gets all reports.
// REQUIRES: reports of the same lengths on every rank.
std::vector<CheckReport> exchange_reports(const std::vector<CheckReport>& mine,
                                          comm::Communicator* communicator);

// Makes rank 0's reference that of all ranks.
void share_from_rank_0(ReferenceGradient& reference, comm::Communicator* communicator);

// For every rank, the largest difference between its tensor and rank 0's; mine: by local rank.
std::vector<double> differences_from_rank_0(const std::vector<std::vector<double>>& mine,
                                            comm::Communicator* communicator);

}  // namespace lockstep::tools
