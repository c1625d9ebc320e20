// One unit: its parameters and gradients in flat buffers, of which this rank owns a part.
//
//   whole parameters  [p0 | p1 | ... | padding]   all ranks', gathered for as long as they are used
//   shard             part `rank` of it            this rank's: what its optimizer steps on
//   whole gradients   [g0 | g1 | ... | padding]   this rank's rows' alone
//   reduced           part `rank` of their mean    the shard's gradient
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/parallel/sharded/layout.h"

namespace lockstep::parallel {

// Each depth also shards what the depths before it shard.
enum class ShardDepth { optimizer = 1, gradients = 2, parameters = 3 };

// The part of one parameter that lies in this rank's shard.
struct ShardPiece {
  std::string name;        // the parameter's
  Shape shape;             // the whole parameter's
  std::size_t offset = 0;  // where the piece begins in the parameter, in elements
  std::size_t place = 0;   // where the piece begins in the unit's shard
  Variable value;          // [elements]: a leaf, for the optimizer
};

class Unit {
 public:
  // Takes the parameters over: their tensors are views of the flat buffer from now on.
  Unit(UnitLayout layout, comm::Communicator& communicator, ShardDepth depth);

  const UnitLayout& layout() const { return layout_; }
  const std::vector<ShardPiece>& pieces() const { return pieces_; }
  bool holds(const Tensor& tensor) const { return tensor.storage() == whole_.storage(); }

  // --- parameters
  bool is_whole() const { return is_whole_; }
  // Starts an asynchronous all-gather, unless the parameters are whole, or will be.
  void start_gather();
  // They are whole afterwards.
  void gather();
  // Depth three gives their memory back.
  void free_parameters();
  // The shards will be changed: what was gathered is out of date.
  void expect_step();

  // --- gradients
  // Before this unit's backward pass: makes memory for the gradients.
  void begin_backward();
  // Takes a parameter's gradient. Returns true for the last one.
  bool collect(std::size_t parameter);
  // Starts an asynchronous reduce-scatter of the gradients.
  void start_reduce();
  // Ends it: adds the mean to the gradients of the pieces, and gives memory back.
  void finish_reduce();
  // Parameters without a gradient in a backward pass that reached others; empty: none.
  std::string missing() const;
  void forget_collected() { is_collected_.assign(layout_.parameters.size(), false); }

  // All ranks' tensors for the pieces, made one flat buffer like the parameters'.
  template <typename OfPiece>
  Tensor gather_pieces(const OfPiece& of_piece) const {
    const Tensor part = Tensor::zeros_like(shard_);
    for (const ShardPiece& piece : pieces_) {
      part.slice(piece.place, piece.value.shape()).copy_from(of_piece(piece));
    }
    const Tensor all = Tensor::empty({layout_.num_elements}, part.dtype(), part.device());
    communicator_.all_gather(part, all).wait();
    return all;
  }

 private:
  bool frees_gradients() const { return depth_ >= ShardDepth::gradients; }
  bool frees_parameters() const { return depth_ == ShardDepth::parameters; }

  UnitLayout layout_;
  comm::Communicator& communicator_;
  ShardDepth depth_;
  std::vector<ShardPiece> pieces_;
  Tensor whole_;
  Tensor shard_;  // below depth three, a view of whole_
  Tensor grads_;
  bool is_whole_ = true;
  bool has_grad_memory_ = true;
  Tensor gathered_;  // while an all-gather runs
  comm::Work gather_;
  Tensor reduced_;  // while a reduce-scatter runs
  comm::Work reduce_;
  std::vector<bool> is_collected_;  // indexed by parameter
};

}  // namespace lockstep::parallel
