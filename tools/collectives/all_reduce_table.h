// The table of `bench all-reduce`, with nccl-tests' columns and the plan.
#pragma once

#include <cstdio>

#include "tools/collectives/all_reduce_report.h"

namespace lockstep::tools {

class AllReduceTable final : public AllReduceReport {
 public:
  // Prints the head of the table; on stderr where --json has standard output.
  explicit AllReduceTable(const AllReduceBench& bench);
  void add(const AllReduceRow& row) override;
  void finish() override;

 private:
  const AllReduceFlags& flags_;
  std::FILE* out_;
  std::size_t num_rows_ = 0;
  double total_busbw_ = 0;
  std::size_t total_wrong_ = 0;
};

}  // namespace lockstep::tools
