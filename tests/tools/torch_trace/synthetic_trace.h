// Traces written by hand, with the field names that PyTorch documents and its files have, so that a
// test knows every figure. Times are microseconds, as in the files.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <utility>

#include "tests/support/temp_folder.h"
#include "tools/torch_trace/rank_trace.h"

namespace lockstep::testing {

using Json = nlohmann::ordered_json;

class SyntheticTrace {
 public:
  explicit SyntheticTrace(int rank = 0, int world_size = 1, const char* backend = "nccl")
      : json_{
            {"schemaVersion", 1},
            {"deviceProperties", Json::array({{{"id", 0}, {"name", "NVIDIA H100 80GB HBM3"}}})},
            {"distributedInfo", {{"backend", backend}, {"rank", rank}, {"world_size", world_size}}},
            {"traceEvents", Json::array()}} {}

  SyntheticTrace& event(const char* category, const std::string& name, int thread, double begin,
                        double duration, Json args = Json::object()) {
    json_["traceEvents"].push_back({{"ph", "X"},
                                    {"cat", category},
                                    {"name", name},
                                    {"pid", 1},
                                    {"tid", thread},
                                    {"ts", begin},
                                    {"dur", duration},
                                    {"args", std::move(args)}});
    return *this;
  }
  SyntheticTrace& step(int number, double begin, double duration) {
    return event("user_annotation", "ProfilerStep#" + std::to_string(number), 1, begin, duration);
  }
  SyntheticTrace& op(const std::string& name, double begin, double duration, int thread = 1) {
    return event("cpu_op", name, thread, begin, duration);
  }
  SyntheticTrace& kernel(const std::string& name, double begin, double duration,
                         Json args = Json::object()) {
    return event("kernel", name, 7, begin, duration, std::move(args));
  }
  // An all-reduce of float32 elements by NCCL, as PyTorch 2.2 and newer record it.
  SyntheticTrace& nccl_all_reduce(double begin, double duration, double elements, int num_ranks) {
    return kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                  begin, duration,
                  {{"Collective name", "allreduce"},
                   {"In msg nelems", elements},
                   {"Out msg nelems", elements},
                   {"Group size", num_ranks},
                   {"dtype", "Float"}});
  }
  // One by gloo, recorded with record_shapes=True.
  SyntheticTrace& gloo_all_reduce(double begin, double duration, int elements) {
    return event("user_annotation", "gloo:all_reduce", 9, begin, duration,
                 {{"Input Dims", Json::array({Json::array({elements})})},
                  {"Input type", Json::array({"float"})}});
  }

  Json& json() { return json_; }
  std::string text() const { return json_.dump(); }
  // Written to a file, and read.
  tools::RankTrace read() const {
    const TempFolder folder;
    write_text(folder / "trace.json", text());
    return tools::read_rank_trace((folder / "trace.json").string());
  }

 private:
  Json json_;
};

}  // namespace lockstep::testing
