// The ranks of one emulated NCCL communicator, as threads of one process, and where they meet.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace emulated_nccl {

enum class Kind { all_reduce, broadcast, all_gather, reduce_scatter, message };

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

class Clique {
 public:
  explicit Clique(int num_ranks) : parts_(static_cast<std::size_t>(num_ranks)) {}

  void join();
  bool is_complete() const;

  // On a rank's stream: returns when all ranks' streams have come with parts that fit, and the data
  // has moved; or when this rank has aborted. Parts that do not fit hang, as on a GPU they may.
  void meet(int rank, const Part& part, const bool& is_aborted);
  // Lets a rank's stream out of meet(): is_aborted becomes true.
  void abort(bool& is_aborted);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const Part*> parts_;  // by rank, of the current round
  std::size_t num_joined_ = 0;
  std::size_t num_arrived_ = 0;
  unsigned long round_ = 0;
};

// Does what the call does, for all ranks.
void move_data(const std::vector<const Part*>& parts);

// A test's wish: NCCL reports this about every communicator of the rank from now on; ncclSuccess
// ends it.
void set_async_error(int rank, ncclResult_t error);

}  // namespace emulated_nccl
