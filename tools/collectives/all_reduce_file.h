// The file of `bench all-reduce --json`, in the schema "lockstep.bench-all-reduce/1".
#pragma once

#include <nlohmann/json.hpp>

#include "tools/collectives/all_reduce_report.h"

namespace lockstep::tools {

class AllReduceFile final : public AllReduceReport {
 public:
  explicit AllReduceFile(const AllReduceBench& bench) : bench_(bench) {}
  void add(const AllReduceRow& row) override;
  void finish() override;

 private:
  const AllReduceBench& bench_;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

}  // namespace lockstep::tools
