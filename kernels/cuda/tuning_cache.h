// The table of chosen algorithms as a text file, LOCKSTEP_TUNING_CACHE=FILE.
//
//   lockstep tuning 1
//   NVIDIA H200 <tab> 130100 <tab> numbers of the key <tab> epilogue workspace microseconds <tab>
//   algorithm
//
// 130100 is the version of cuBLASLt: an algorithm is the library's own 64 bytes, in hexadecimal,
// and means nothing to another version. Lines of other GPUs and versions are kept, so that machines
// can share a file.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <tuple>

#include "kernels/cuda/product_plan.h"

namespace lockstep::kernels::cuda {

// GPU model, version of cuBLASLt, product.
using CacheKey = std::tuple<std::string, std::size_t, ProductKey>;
using TuningTable = std::map<CacheKey, ProductPlan>;

class TuningCache {
 public:
  // Reads the file. One that does not exist is an empty table. A file that is something else, or is
  // damaged, is left out with one line in the log; one without the first line above is never
  // written either, since it belongs to somebody.
  // An empty path: no file at all.
  explicit TuningCache(std::filesystem::path path);

  // The one that LOCKSTEP_TUNING_CACHE names.
  static TuningCache from_environment();

  const TuningTable& table() const { return table_; }

  // Adds an entry and replaces the file, at once for readers. Processes that write at the same time
  // replace each other's file; what is lost is timed again. A file that cannot be written is said
  // once in the log.
  void add(const CacheKey& key, const ProductPlan& plan);

 private:
  void read();
  void write();

  std::filesystem::path path_;
  bool is_ours_ = true;  // may be written
  TuningTable table_;
};

}  // namespace lockstep::kernels::cuda
