// One rank of an emulated NCCL communicator, and where it meets the others, which are threads or
// processes of this machine: a folder.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

namespace emulated_nccl {

enum class Kind { all_reduce, broadcast, all_gather, reduce_scatter };

// One rank's part in a call.
struct Part {
  Kind kind{};
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  ncclDataType_t type{};
  ncclRedOp_t op{};
  int root = 0;

  bool fits(const Part& other) const {
    return kind == other.kind && count == other.count && type == other.type && op == other.op &&
           root == other.root;
  }
};

// In the folder: joined.R and left.R say that rank R has come and gone, part.N.R is its part in
// round N with the data that it gives. A part is taken away in the next round, when all have read
// it; the folder by the rank that leaves last.
class Clique {
 public:
  // Joins. name: of the communicator, the same on all ranks.
  Clique(const std::string& name, int num_ranks, int rank);
  ~Clique();
  Clique(const Clique&) = delete;
  Clique& operator=(const Clique&) = delete;

  // True if all ranks have joined.
  bool is_complete();

  // On this rank's stream: returns when all ranks' streams have come with parts that fit, and this
  // rank's data is there; or when it has aborted. Parts that do not fit hang, as on a GPU they may.
  void meet(const Part& part);
  // Lets this rank's stream out of meet(), for good.
  void abort() { is_aborted_ = true; }

 private:
  std::filesystem::path file(const std::string& name, int rank) const;
  void give(const Part& part) const;
  bool wait_for(const std::filesystem::path& path) const;

  const std::filesystem::path folder_;
  const int num_ranks_;
  const int rank_;
  std::atomic<bool> is_complete_{false};
  std::atomic<bool> is_aborted_{false};
  std::mutex mutex_;  // one meeting at a time
  std::size_t round_ = 0;
};

// The bytes of an input, where the rank gives one.
std::size_t input_bytes(const Part& part, int rank, std::size_t num_ranks);

// Does what the call does for one rank, given the inputs of all.
void move_data(const std::vector<Part>& parts, std::size_t rank);

// For tests: NCCL reports this about every communicator of the rank from now on; ncclSuccess ends
// it.
void set_async_error(int rank, ncclResult_t error);

// For tests: the rank's next call after so many more is refused with ncclInvalidArgument.
void refuse_call(int rank, std::size_t num_calls_before);

}  // namespace emulated_nccl
