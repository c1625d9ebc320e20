// Data-parallel training in which no rank holds all of it: ZeRO's three stages, the last of which
// PyTorch calls FSDP. Ranks divide the batch as in Ddp (../ddp/ddp.h); besides, each owns 1/n of
// every layer's parameters, and only it keeps the optimizer's state for them. DDP's all-reduce is a
// reduce-scatter and an all-gather; here the optimizer's step stands between the two:
//
//   all-gather the parameters -> forward, backward -> reduce-scatter the gradients -> step on 1/n
//
// Bytes per rank with P of parameters, optimizer state S * P (AdamW: 2), and n ranks:
//   DDP               P         + P        + S P       sends 2 (n-1)/n P per step
//   depth optimizer   P         + P + P/n  + S P / n   the same
//   depth gradients   P         + P/n      + S P / n   the same
//   depth parameters  P/n       + P/n      + S P / n   1.5 times that: gathers for backward too
// and at depths two and three what the layers at work need: up to two layers' gradients, and (at
// three) two layers' parameters.
//
// Read layout.h (which parameters), unit.h (one layer's buffers), unit_schedule.h (when).
// Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models", SC 2020; Zhao et al., "PyTorch FSDP", VLDB 2023.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/nn/state_dict.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/packed_buffers.h"
#include "engine/parallel/sharded/unit_schedule.h"

namespace lockstep::parallel {

class Sharded final : public nn::ModuleOf<Sharded> {
 public:
  // Parameters and buffers come from rank 0, and become others, side by side in one memory. Errors
  // are those of broadcast_model (ddp.h) and unit_layouts. REQUIRES: the communicator outlives
  // this.
  Sharded(std::shared_ptr<nn::Module> module, comm::Communicator& communicator, ShardDepth depth);

  // Every rank makes the same passes, also without gradients. In training buffers follow rank 0.
  Variable forward(const Variable& input) override;

  // The tensors that this rank's optimizer steps on; it may have no piece of a parameter.
  // A backward pass leaves the mean over all ranks in their gradients.
  std::vector<ShardPiece> pieces() const;
  // The same with one weight decay for all of them; or without for those of vectors, as
  // optim::decay_groups.
  enum class Decays { all, matrices };
  std::vector<optim::ParameterGroup> groups(double weight_decay, Decays decays = Decays::all) const;

  // As optim::clip_grad_norm_on_device, by the norm over all ranks' pieces. All ranks call it.
  Tensor clip_grad_norm(double max_norm) const;

  // While one lives, a backward pass is one of several before a step (UnitSchedule::set_stepping).
  class NoStep {
   public:
    explicit NoStep(UnitSchedule& schedule, bool applies = true) : schedule_(schedule) {
      if (applies) schedule_.set_stepping(false);
    }
    ~NoStep() { schedule_.set_stepping(true); }
    NoStep(const NoStep&) = delete;
    NoStep& operator=(const NoStep&) = delete;

   private:
    UnitSchedule& schedule_;
  };
  // With false it changes nothing.
  [[nodiscard]] NoStep no_step(bool applies = true) { return NoStep(*schedule_, applies); }

  // Makes whole tensors of all ranks' tensors for their pieces (values, gradients, an optimizer's
  // state): visit(name of the parameter, tensor), unit by unit. All ranks call it.
  using OfPiece = std::function<Tensor(const ShardPiece& piece)>;
  using Visit = std::function<void(const std::string& name, const Tensor& whole)>;
  void gather(const OfPiece& of_piece, const Visit& visit) const;
  // nn::state_dict() of the whole module, as copies on the CPU: on rank 0, elsewhere empty. All
  // ranks call it.
  nn::StateDict state_dict() const;

  ShardDepth depth() const { return depth_; }
  const std::shared_ptr<nn::Module>& module() const { return children()[0].second; }
  const std::vector<Unit>& units() const { return schedule_->units(); }
  std::string type_name() const override { return "Sharded"; }

 private:
  comm::Communicator* communicator_;
  ShardDepth depth_;
  PackedBuffers buffers_;
  std::shared_ptr<UnitSchedule> schedule_;
};

// This rank's piece of a whole tensor that is like the piece's parameter.
Tensor piece_of(const ShardPiece& piece, const Tensor& whole);

}  // namespace lockstep::parallel
