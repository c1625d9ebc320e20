// The file of `bench all-reduce -J FILE`, with the fields of nccl-tests' own (its version 3).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/collectives/all_reduce_report.h"

namespace lockstep::tools {

class NcclTestsFile final : public AllReduceReport {
 public:
  // Decides on the name and prints it as a comment: a file that exists is not written over.
  explicit NcclTestsFile(const AllReduceBench& bench);
  void add(const AllReduceRow& row) override;
  void finish() override;

 private:
  nlohmann::ordered_json describe(std::size_t num_bytes, const AllReduceTime& time);

  const AllReduceFlags& flags_;
  std::string path_;
  nlohmann::ordered_json json_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
  std::size_t num_times_ = 0;
  double total_busbw_ = 0;
  std::size_t total_wrong_ = 0;
};

}  // namespace lockstep::tools
