// The table of `bench all-reduce --format nccl-tests`: the lines and columns that all_reduce_perf
// prints, so that what reads its output reads ours.
#pragma once

#include <cstdio>
#include <string>

#include "tools/collectives/all_reduce_report.h"

namespace lockstep::tools {

class NcclTestsTable final : public AllReduceReport {
 public:
  // Prints the head of the table; on stderr where --json has standard output.
  explicit NcclTestsTable(const AllReduceBench& bench);
  void add(const AllReduceRow& row) override;
  void finish() override;

 private:
  // Time, algbw, busbw and #wrong.
  std::string columns_of(std::size_t num_bytes, const AllReduceTime& time);

  const AllReduceFlags& flags_;
  std::FILE* out_;
  std::size_t num_times_ = 0;
  double total_busbw_ = 0;
  std::size_t total_wrong_ = 0;
};

// A number in so many characters: with two digits after the point, with one, with none, or as a
// power of ten, whichever is the first that fits.
std::string in_columns(double value, std::size_t width);

// "cpu:1", as a GPU's bus address stands there.
std::string address_of(Device device);

}  // namespace lockstep::tools
