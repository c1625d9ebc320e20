// Tensor parallelism: each rank holds a part of every large matrix, and all ranks see every row.
//
//   y = act(x * A^T + a) * B^T + b       A [hidden, in] cut by rows, B [out, hidden] by columns
//
//   x ──copy_to_ranks──> x * A_r^T + a_r ──act──> h_r * B_r^T ──sum_over_ranks──> y, on every rank
//
// Rank r computes its part h_r of the hidden features, for which it needs A_r, a_r and B_r alone.
// An activation works element by element, so nothing is exchanged between the two layers.
//   Cost: for a pair of layers one all-reduce of y [rows, out] in the forward pass, and one of x's
//         gradient [rows, in] in the backward pass unless x needs none. A GPT block has two pairs.
//   Memory: 1/n of the parameters, gradients and optimizer state of the layers that are cut.
// Everything else (norms, embeddings, the loss) every rank computes alike, to the bit.
//   Source: Shoeybi et al., "Megatron-LM", 2019, whose operations f and g these are.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/nn/gpt.h"

namespace lockstep::parallel {

// The two conjugate operations. All ranks call them in the same order, forward and backward.
// REQUIRES: the communicator outlives the backward pass.
// f: x as it is; its gradient is the sum of all ranks'.
Variable copy_to_ranks(const Variable& x, comm::Communicator& communicator);
// g: the sum of all ranks' x; the gradient as it is.
Variable sum_over_ranks(const Variable& x, comm::Communicator& communicator);

// A parameter of a model that is cut.
struct CutParameter {
  enum class Kind { whole, cut, of_rank_0 };  // on every rank; a part on each; on rank 0 alone
  std::string name;
  Kind kind = Kind::whole;
  Shape shape;            // the whole parameter's
  Variable value;         // this rank's; undefined where rank 0 alone has it
  std::size_t outer = 1;  // where it is cut: the whole is seen as [outer, ranks, the rest]
  comm::Communicator* communicator = nullptr;  // nullptr: whole

  // This rank's part of a tensor that is like the whole parameter.
  Tensor part_of(const Tensor& whole) const;
  // The whole of all ranks' tensors, each like its value. Every rank calls it.
  Tensor gather(const Tensor& mine) const;
};

// A linear layer of which each rank holds a part.
//   outputs  rows of W and b: every rank computes other features. Megatron's ColumnParallelLinear.
//   inputs   columns of W: every rank reads other features, and y is the sum over ranks. Rank 0
//            alone has the bias, which so enters the sum once. Megatron's RowParallelLinear.
// Shapes:  x [batch, in] or [batch, length, in], as y: in or out is that of the part on its side.
class CutLinear final : public nn::ModuleOf<CutLinear>, public nn::ActivatedLayer {
 public:
  enum class Side { outputs, inputs };
  // blocks: of outputs that are cut one by one: 3 where they are queries, keys and values.
  // Throws Error{Usage} unless the ranks divide the inputs, or each block of outputs.
  CutLinear(const nn::Linear& whole, Side side, comm::Communicator& communicator,
            std::size_t blocks = 1);

  Variable forward(const Variable& x) override { return forward(x, Activation::none); }
  Variable forward(const Variable& x, Activation activation) const override;

  // Its weight and bias, the same on every rank but for the values.
  std::vector<CutParameter> cut_parameters(const std::string& prefix) const;

 private:
  comm::Communicator* communicator_;
  Side side_;
  std::size_t outer_;  // the weight is cut as [outer, ranks, the rest]
  Shape shape_;        // the whole weight's
  bool has_bias_;
};

// A GPT block whose heads and hidden features are cut. Its layer norms are those of `whole`.
// Throws Error{Usage} unless the ranks divide the heads.
class CutGptBlock final : public nn::ModuleOf<CutGptBlock> {
 public:
  CutGptBlock(const nn::GptBlock& whole, comm::Communicator& communicator);
  Variable forward(const Variable& x) override;
};

// This rank's part of a Sequential or a Gpt, under the same names: each Linear, activation, Linear
// in a row becomes a pair that is cut, each GptBlock a CutGptBlock; other modules are shared with
// `whole`.
// Throws Error{Usage} where the ranks do not divide what is cut, and where nothing can be cut.
// REQUIRES: all ranks' models hold the same values; the communicator outlives the part.
std::shared_ptr<nn::Module> tensor_parallel(const nn::Module& whole,
                                            comm::Communicator& communicator);

// The parameters of a part, in the order of the whole model, the same on every rank.
std::vector<CutParameter> cut_parameters(const nn::Module& part, const std::string& prefix = {});

// The state of the whole model, on every rank. Every rank calls it.
nn::StateDict whole_state(const nn::Module& part, const std::string& prefix = {});

}  // namespace lockstep::parallel
