// The part of a layer that a GPU holds, and which calls that allows.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <stdexcept>
#include <utility>

#include "tutorials/labs/puzzles/verbs.h"

namespace lab {

// A rule of the schedule is broken; what() says how.
class Foul : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Values>
[[noreturn]] void foul(fmt::format_string<Values...> text, Values&&... values) {
  throw Foul(fmt::format(text, std::forward<Values>(values)...));
}

// Every call throws Foul if it is not allowed now. Bytes: what the GPU holds more from now on, or,
// if they are negative, less.
class Holding {
 public:
  using Bytes = std::ptrdiff_t;

  // A layer that the GPU does not load: nothing is allowed.
  Holding() = default;
  Holding(int layer, Keep keep, std::size_t num_gpus, std::size_t whole_bytes);

  bool is_loaded() const { return num_gpus_ > 0; }
  Bytes loaded() const;

  void require_parameters() const;
  Bytes add_gradient();
  // A collective is called; it has been waited for.
  Bytes start(Op op);
  void finish(Op op);
  Bytes updated_parameters() const;  // how many bytes of parameters an update changes
  Bytes update();
  Bytes free_parameters();
  Bytes free_gradient();
  // After the step.
  void require_end() const;

 private:
  enum class Parameters { shard, arriving, whole, stale };  // stale: but for the GPU's shard
  enum class Gradient { none, own, summing, sum, scattering, scattered };
  enum class Shard { none, arriving, ready };  // of the gradient

  bool is_alone() const { return num_gpus_ == 1; }
  Bytes shard() const { return whole_ / num_gpus_; }
  Bytes gather();

  int layer_ = 0;
  Keep keep_ = Keep::whole;
  Bytes num_gpus_ = 0;
  Bytes whole_ = 0;
  Parameters parameters_ = Parameters::whole;
  Gradient gradient_ = Gradient::none;
  Shard gradient_shard_ = Shard::none;
  bool is_updated_ = false;
};

}  // namespace lab
