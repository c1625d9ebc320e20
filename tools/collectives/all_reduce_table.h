// The table of `bench all-reduce`, with nccl-tests' columns and definitions, and its file.
// algbw = bytes / time, busbw = algbw * 2(n-1)/n.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/collectives/measure_all_reduce.h"

namespace lockstep::tools {

class AllReduceTable {
 public:
  // Prints the head of the table. command: for the file; flags and command must outlive the table.
  // who: "ranks are threads on cpu devices, ...".
  AllReduceTable(const AllReduceFlags& flags, const std::vector<std::string>& command,
                 const std::string& who);

  // Prints a row and keeps it for the file. num_bytes: of the buffer. description: how the ranks
  // talk, as Communicator::description() says it.
  void add(std::size_t num_bytes, std::string_view plan, DeviceType device,
           const std::string& transport, const AllReduceTime& time);

  // Prints the end of the table and writes --json.
  // Throws Error{Numeric} when values were wrong.
  void finish();

 private:
  const AllReduceFlags& flags_;
  const std::vector<std::string>& command_;
  std::FILE* out_;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
  double total_busbw_ = 0;
  std::size_t total_wrong_ = 0;
};

// The links in a communicator's description: "shm" of "own: auto over shm"; else the whole of it.
std::string transport_in(const std::string& description);

}  // namespace lockstep::tools
