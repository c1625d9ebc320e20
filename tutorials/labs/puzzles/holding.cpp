#include "tutorials/labs/puzzles/holding.h"

namespace lab {

Holding::Holding(int layer, Keep keep, std::size_t num_gpus, std::size_t whole_bytes)
    : layer_(layer), keep_(keep), num_gpus_(Bytes(num_gpus)), whole_(Bytes(whole_bytes)) {
  if (keep == Keep::shard && !is_alone()) parameters_ = Parameters::shard;
}

Holding::Bytes Holding::loaded() const {
  if (!is_loaded()) return 0;
  return (keep_ == Keep::shard ? shard() : whole_) + (keep_ == Keep::whole ? whole_ : shard());
}

void Holding::require_parameters() const {
  if (is_updated_) foul("the GPU has updated layer {} already", layer_);
  if (parameters_ == Parameters::arriving) {
    foul("uses the parameters of layer {} before it waited for their all_gather", layer_);
  }
  if (parameters_ != Parameters::whole) {
    foul("uses the parameters of layer {} before they were gathered: it holds only its shard",
         layer_);
  }
}

Holding::Bytes Holding::add_gradient() {
  switch (gradient_) {
    case Gradient::none:
      gradient_ = Gradient::own;
      return whole_;
    case Gradient::own:
      return 0;
    case Gradient::summing:
    case Gradient::scattering:
      foul("adds to the gradient of layer {} while it is being reduced", layer_);
    case Gradient::sum:
      foul("adds to the gradient of layer {} after its all_reduce", layer_);
    case Gradient::scattered:
      foul("adds to the gradient of layer {} after its reduce_scatter: free it first", layer_);
  }
  return 0;
}

Holding::Bytes Holding::gather() {
  if (parameters_ == Parameters::whole || parameters_ == Parameters::arriving) {
    foul("the parameters of layer {} are whole already, or being gathered", layer_);
  }
  const bool is_new = parameters_ == Parameters::shard;
  parameters_ = Parameters::arriving;
  return is_new ? whole_ : 0;
}

Holding::Bytes Holding::start(Op op) {
  if (op == Op::all_gather) return gather();
  if (gradient_ != Gradient::own) {
    foul("there is no gradient of layer {} that backward added to and that was not reduced yet",
         layer_);
  }
  if (op == Op::all_reduce) {
    gradient_ = Gradient::summing;
    return 0;
  }
  gradient_ = Gradient::scattering;
  const bool is_new = gradient_shard_ == Shard::none;
  gradient_shard_ = Shard::arriving;
  return is_new ? shard() : 0;
}

void Holding::finish(Op op) {
  if (op == Op::all_gather && parameters_ == Parameters::arriving) {
    parameters_ = Parameters::whole;
  } else if (op == Op::all_reduce && gradient_ == Gradient::summing) {
    gradient_ = Gradient::sum;
  } else if (op == Op::reduce_scatter && gradient_ == Gradient::scattering) {
    gradient_ = Gradient::scattered;
    gradient_shard_ = Shard::ready;
  }
}

Holding::Bytes Holding::updated_parameters() const {
  return keep_ == Keep::whole ? whole_ : shard();
}

Holding::Bytes Holding::update() {
  if (is_updated_) foul("updates layer {} twice", layer_);
  if (parameters_ == Parameters::arriving) {
    foul("updates layer {} while it is being gathered", layer_);
  }
  if (gradient_ == Gradient::summing || gradient_shard_ == Shard::arriving) {
    foul("updates layer {} before it waited for the sum of its gradient", layer_);
  }
  if (gradient_ == Gradient::own && !is_alone()) {
    foul("updates layer {} with the GPU's own gradient, before it was reduced", layer_);
  }
  const bool has_shard = gradient_shard_ == Shard::ready;
  const bool has_sum = gradient_ == Gradient::sum || gradient_ == Gradient::own;
  if (!has_sum && !has_shard) foul("there is no gradient of layer {}", layer_);
  if (!has_sum && keep_ == Keep::whole && !is_alone()) {
    foul("has a shard of the gradient of layer {}, and loaded the whole state", layer_);
  }
  if (has_sum) gradient_ = Gradient::none;
  gradient_shard_ = Shard::none;
  is_updated_ = true;
  const bool is_sharded = keep_ != Keep::whole && !is_alone();
  if (is_sharded && parameters_ == Parameters::whole) parameters_ = Parameters::stale;
  return -(has_shard ? shard() : 0) - (has_sum ? whole_ : 0);
}

Holding::Bytes Holding::free_parameters() {
  if (keep_ != Keep::shard || is_alone()) {
    foul("frees the parameters of layer {}, which were loaded, not gathered", layer_);
  }
  if (parameters_ == Parameters::arriving) {
    foul("frees the parameters of layer {} while they are being gathered", layer_);
  }
  if (parameters_ == Parameters::shard) {
    foul("frees the parameters of layer {}, which are not gathered", layer_);
  }
  parameters_ = Parameters::shard;
  return -whole_;
}

Holding::Bytes Holding::free_gradient() {
  switch (gradient_) {
    case Gradient::none:
      foul("frees the gradient of layer {}, which is not there", layer_);
    case Gradient::own:
      foul("frees the gradient of layer {} before it was reduced", layer_);
    case Gradient::summing:
    case Gradient::scattering:
      foul("frees the gradient of layer {} while it is being reduced", layer_);
    case Gradient::sum:
      foul("frees the gradient of layer {} before the update", layer_);
    case Gradient::scattered:
      gradient_ = Gradient::none;
  }
  return -whole_;
}

void Holding::require_end() const {
  if (!is_loaded()) return;
  if (!is_updated_) foul("never updates layer {}", layer_);
  if (keep_ == Keep::shard || parameters_ == Parameters::whole) return;
  foul(
      "ends with old parameters of layer {}, but for its shard: after update comes all_gather, and "
      "a wait for it",
      layer_);
}

}  // namespace lab
