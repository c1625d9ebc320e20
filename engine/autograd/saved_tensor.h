// A tensor that a node keeps from forward for backward, with the version (Tensor::version) that it
// had then. Node::unpack() gives it back, and refuses one that was changed in place since.
#pragma once

#include <cstdint>
#include <utility>

#include "engine/tensor/tensor.h"

namespace lockstep {

class SavedTensor {
 public:
  SavedTensor() = default;  // undefined
  // Not explicit: nodes are given tensors and keep these.
  SavedTensor(Tensor tensor)
      : tensor_(std::move(tensor)), version_(tensor_.defined() ? tensor_.version() : 0) {}

  bool defined() const { return tensor_.defined(); }
  std::uint64_t version() const { return version_; }
  bool was_changed() const { return tensor_.defined() && tensor_.version() != version_; }
  // For its sizes alone: its elements may have been changed.
  const Tensor& unchecked() const { return tensor_; }

 private:
  Tensor tensor_;
  std::uint64_t version_ = 0;
};

}  // namespace lockstep
