// All-reduces of one kind between ranks: their time, and the values that are wrong.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "engine/comm/communicator.h"
#include "engine/core/device.h"
#include "engine/core/dtype.h"

namespace lockstep::tools {

// Element types and operations, by nccl-tests' names.
struct Datatype {
  DType dtype;
  double roundoff;  // the largest relative error of one rounding
};
inline const std::map<std::string, Datatype> kDatatypes = {
    {"float", {DType::float32, 0x1p-24}}, {"double", {DType::float64, 0x1p-53}},
    {"half", {DType::float16, 0x1p-11}},  {"bfloat16", {DType::bfloat16, 0x1p-8}},
    {"int32", {DType::int32, 0}},         {"int64", {DType::int64, 0}}};

struct Operation {
  comm::ReduceOp op;
  double (*combine)(double a, double b);  // two ranks' values; an average is divided afterwards
};
inline const std::map<std::string, Operation> kOps = {
    {"sum", {comm::ReduceOp::sum, [](double a, double b) { return a + b; }}},
    {"avg", {comm::ReduceOp::average, [](double a, double b) { return a + b; }}},
    {"prod", {comm::ReduceOp::product, [](double a, double b) { return a * b; }}},
    {"min", {comm::ReduceOp::min, [](double a, double b) { return std::min(a, b); }}},
    {"max", {comm::ReduceOp::max, [](double a, double b) { return std::max(a, b); }}}};

// The all-reduce that is measured, and how often.
struct AllReduceKind {
  std::string datatype = "float";
  std::string op = "sum";
  int iterations = 20;
  int warm_up = 5;
  bool checks = false;

  DType element_type() const { return kDatatypes.at(datatype).dtype; }
};

struct AllReduceTime {
  double seconds = 0;         // mean of an all-reduce, on the slowest rank
  std::size_t num_wrong = 0;  // values over all ranks; 0 if nothing was checked
};

// Every rank calls it alike, with a device of its own. count: elements of kind.element_type().
AllReduceTime measure_all_reduce(const AllReduceKind& kind, comm::Communicator& communicator,
                                 Device device, std::size_t count);

}  // namespace lockstep::tools
