// Where the rows of `bench all-reduce` go: a table on the terminal and files, in two formats each.
// algbw = bytes / time, busbw = algbw * 2(n-1)/n, in GB/s, as nccl-tests defines them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/collectives/measure_all_reduce.h"

namespace lockstep::tools {

// Who a rank is.
struct RankPlace {
  int process = 0;
  std::string host;
  Device device;
};

// What a report tells before its first row. All must outlive it.
struct AllReduceBench {
  const AllReduceFlags& flags;
  const std::vector<std::string>& command;
  std::string who;  // "ranks are threads on cpu devices, ..."
  std::vector<RankPlace> places;
};

struct AllReduceRow {
  std::size_t num_bytes = 0;  // of the buffer
  std::string plan;
  DeviceType device = DeviceType::cpu;
  std::string transport;
  AllReduceTime in_place;
  AllReduceTime out_of_place;  // where flags.measures_out_of_place()
};

struct Bandwidth {
  double algbw = 0;
  double busbw = 0;
};
Bandwidth bandwidth(std::size_t num_bytes, const AllReduceTime& time, int num_ranks);

class AllReduceReport {
 public:
  virtual ~AllReduceReport() = default;
  virtual void add(const AllReduceRow& row) = 0;
  // After the last row. Throws Error{Io} when a file cannot be written.
  virtual void finish() = 0;
};

// As the flags say: --format, --json, -J.
std::vector<std::unique_ptr<AllReduceReport>> make_reports(const AllReduceBench& bench);

}  // namespace lockstep::tools
