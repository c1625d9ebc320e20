// Shows the rows of `bench all-reduce`: a table on the terminal and files, in two formats each.
// algbw = bytes / time, busbw = algbw * 2(n-1)/n, in GB/s, as nccl-tests defines them.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "tools/collectives/all_reduce_flags.h"

namespace lockstep::tools {

struct RankPlace {
  int process = 0;
  std::string host;
  Device device;
};

struct AllReduceBench {
  const AllReduceFlags& flags;
  const std::vector<std::string>& command;
  std::string who;  // "ranks are threads on cpu devices, ..."
  std::vector<RankPlace> places;
};

struct AllReduceRow {
  std::size_t num_bytes = 0;  // of the buffer
  std::size_t count = 0;      // elements
  std::string datatype;
  std::string op;
  std::string plan;
  DeviceType device = DeviceType::cpu;
  std::string transport;
  AllReduceTime in_place;
  AllReduceTime out_of_place;  // set if flags.measures_out_of_place()
};

// REQUIRES: the bench outlives it.
class AllReduceReport {
 public:
  // Prints the table's head, on stderr if --json has standard output. -J never overwrites a file:
  // it takes another name, and prints it.
  explicit AllReduceReport(const AllReduceBench& bench);

  void add(const AllReduceRow& row);

  // Prints the table's foot and writes the files. Throws Error{Io} if that fails.
  void finish() const;

 private:
  void print_lockstep_head() const;
  void print_nccl_tests_head() const;
  std::string nccl_tests_columns(std::size_t num_bytes, const AllReduceTime& time) const;

  const AllReduceBench& bench_;
  const AllReduceFlags& flags_;
  std::FILE* out_;
  std::string start_time_;
  std::string nccl_tests_path_;  // the file of -J; empty without it
  std::vector<AllReduceRow> rows_;
};

struct Bandwidth {
  double algbw = 0;
  double busbw = 0;
};
Bandwidth bandwidth(std::size_t num_bytes, const AllReduceTime& time, int num_ranks);

struct AllReduceTotals {
  std::size_t num_wrong = 0;
  double mean_busbw = 0;
};

// out_of_place: those times count too, as in nccl-tests.
AllReduceTotals totals_of(const std::vector<AllReduceRow>& rows, const AllReduceFlags& flags,
                          bool out_of_place);

// The file of --json, in the schema "lockstep.bench-all-reduce/1".
void write_all_reduce_file(const AllReduceBench& bench, const std::vector<AllReduceRow>& rows);

// The file of -J, with the fields of nccl-tests' own (its version 3).
void write_nccl_tests_file(const AllReduceBench& bench, const std::vector<AllReduceRow>& rows,
                           const std::string& path, const std::string& start_time);

}  // namespace lockstep::tools
