#include "engine/parallel/tensor_parallel.h"

#include <utility>
#include <vector>

#include "engine/autograd/node.h"
#include "engine/core/error.h"

namespace lockstep::parallel {
namespace {

Tensor sum_of_all(const Tensor& mine, comm::Communicator& communicator) {
  const Tensor sum = mine.clone();
  communicator.all_reduce(sum).wait();
  return sum;
}

void require_divides(std::string_view what, std::size_t count, int num_ranks) {
  require(count % static_cast<std::size_t>(num_ranks) == 0, ErrorCode::Usage, "tensor_parallel",
          "{} ranks do not divide {} {}: take a number of ranks that does", num_ranks, count, what);
}

// Part `rank` of a tensor seen as [outer, ranks, inner]: outer = 1 cuts rows, 3 the rows of each
// third, and the number of rows cuts columns.
Tensor cut(const Tensor& whole, std::size_t outer, int rank, int num_ranks) {
  const auto ranks = static_cast<std::size_t>(num_ranks);
  const std::size_t inner = whole.num_elements() / (outer * ranks);
  const Tensor part = Tensor::empty({outer * inner}, whole.dtype(), whole.device());
  for (std::size_t i = 0; i < outer; ++i) {
    const std::size_t from = (i * ranks + static_cast<std::size_t>(rank)) * inner;
    part.slice(i * inner, {inner}).copy_from(whole.slice(from, {inner}));
  }
  return part;
}

// All parts, behind each other by rank, as the whole again.
Tensor put_together(const Tensor& parts, std::size_t outer, int num_ranks) {
  const auto ranks = static_cast<std::size_t>(num_ranks);
  const std::size_t inner = parts.num_elements() / (outer * ranks);
  const Tensor whole = Tensor::empty_like(parts);
  for (std::size_t i = 0; i < outer * ranks; ++i) {
    const std::size_t from = (i % ranks * outer + i / ranks) * inner;
    whole.slice(i * inner, {inner}).copy_from(parts.slice(from, {inner}));
  }
  return whole;
}

}  // namespace

// grad_x = sum over r of grad_y_r
Variable copy_to_ranks(const Variable& x, comm::Communicator& communicator) {
  const auto backward = [&communicator](const Node&, const Gradients& grad_outputs) {
    return Gradients{sum_of_all(grad_outputs[0], communicator)};
  };
  return record("CopyToRanks", {x}, x.value(), {}, backward);
}

// All ranks compute the same loss from the sum: grad_x_r = grad_y
Variable sum_over_ranks(const Variable& x, comm::Communicator& communicator) {
  const auto backward = [](const Node&, const Gradients& grad_outputs) {
    return Gradients{grad_outputs[0]};
  };
  return record("SumOverRanks", {x}, sum_of_all(x.value(), communicator), {}, backward);
}

CutLinear::CutLinear(const nn::Linear& whole, Side side, comm::Communicator& communicator,
                     std::size_t blocks)
    : communicator_(&communicator),
      side_(side),
      outer_(side == Side::outputs ? blocks : whole.out_features()),
      shape_(whole.weight().shape()),
      has_bias_(whole.bias().defined()) {
  const int rank = communicator.rank();
  const int num_ranks = communicator.world_size();
  const std::size_t dim = side == Side::outputs ? 0 : 1;
  require_divides(dim == 0 ? "outputs of a layer" : "inputs of a layer", shape_[dim] / blocks,
                  num_ranks);
  const Shape shape = shape_.with(dim, shape_[dim] / static_cast<std::size_t>(num_ranks));
  register_parameter("weight", cut(whole.weight().value(), outer_, rank, num_ranks).reshape(shape));
  if (has_bias_ && dim == 0) {
    register_parameter("bias", cut(whole.bias().value(), outer_, rank, num_ranks));
  } else if (has_bias_ && rank == 0) {
    register_parameter("bias", whole.bias().value().clone());
  }
}

Variable CutLinear::forward(const Variable& x, Activation activation) const {
  const Variable& weight = own_parameters()[0].second;
  const Variable bias = own_parameters().size() > 1 ? own_parameters()[1].second : Variable();
  const Shape shape = x.shape();
  const bool has_sequences = shape.num_dims() == 3;
  Variable y = has_sequences ? reshape(x, {shape[0] * shape[1], shape[2]}) : x;
  if (side_ == Side::outputs) {
    y = linear(copy_to_ranks(y, *communicator_), weight, bias, activation);
  } else {
    y = sum_over_ranks(linear(y, weight, bias), *communicator_);
    if (activation != Activation::none) y = activate(y, activation);
  }
  return has_sequences ? reshape(y, {shape[0], shape[1], weight.shape()[0]}) : y;
}

std::vector<CutParameter> CutLinear::cut_parameters(const std::string& prefix) const {
  using enum CutParameter::Kind;
  std::vector<CutParameter> all{
      {prefix + "weight", cut, shape_, own_parameters()[0].second, outer_, communicator_}};
  if (!has_bias_) return all;
  const bool is_here = own_parameters().size() > 1;
  all.push_back({prefix + "bias",
                 side_ == Side::outputs ? cut : of_rank_0,
                 {shape_[0]},
                 is_here ? own_parameters()[1].second : Variable(),
                 side_ == Side::outputs ? outer_ : 1,
                 communicator_});
  return all;
}

Tensor CutParameter::part_of(const Tensor& whole) const {
  if (kind != Kind::cut) return whole;
  const int num_ranks = communicator->world_size();
  return parallel::cut(whole, outer, communicator->rank(), num_ranks).reshape(value.shape());
}

Tensor CutParameter::gather(const Tensor& mine) const {
  if (kind == Kind::whole) return mine;
  if (kind == Kind::of_rank_0) {
    const Tensor all = mine.clone();
    communicator->broadcast(all, 0).wait();
    return all;
  }
  const Tensor parts = Tensor::empty({shape.num_elements()}, mine.dtype(), mine.device());
  communicator->all_gather(mine, parts).wait();
  return put_together(parts, outer, communicator->world_size()).reshape(shape);
}

namespace {

// Attention over this rank's heads, between c_attn and c_proj.
class Heads final : public nn::ModuleOf<Heads> {
 public:
  explicit Heads(std::size_t heads) : heads_(heads) {}
  Variable forward(const Variable& qkv) override { return attention(qkv, heads_); }

 private:
  std::size_t heads_;
};

// A pair of layers, and between them what works on a part, under the names that the whole has.
std::shared_ptr<nn::Module> cut_pair(const nn::Module& whole, std::size_t blocks,
                                     std::shared_ptr<nn::Module> between,
                                     comm::Communicator& communicator) {
  const auto cut_child = [&](std::size_t i, CutLinear::Side side, std::size_t num_blocks) {
    const auto& [name, child] = whole.children()[i];
    return nn::NamedModule(name, std::make_shared<CutLinear>(dynamic_cast<nn::Linear&>(*child),
                                                             side, communicator, num_blocks));
  };
  return nn::Sequential::with_names({cut_child(0, CutLinear::Side::outputs, blocks),
                                     {"between", std::move(between)},
                                     cut_child(1, CutLinear::Side::inputs, 1)});
}

}  // namespace

CutGptBlock::CutGptBlock(const nn::GptBlock& whole, comm::Communicator& communicator) {
  for (const auto& [name, child] : whole.children()) {
    if (const auto* attn = dynamic_cast<const nn::CausalSelfAttention*>(child.get())) {
      const int num_ranks = communicator.world_size();
      require_divides("heads", attn->heads(), num_ranks);
      const auto heads =
          std::make_shared<Heads>(attn->heads() / static_cast<std::size_t>(num_ranks));
      register_child(name, cut_pair(*attn, 3, heads, communicator));  // queries, keys, values
    } else if (const auto* mlp = dynamic_cast<const nn::GptMlp*>(child.get())) {
      const auto gelu = std::make_shared<nn::GELU>(nn::GeluForm::tanh);
      register_child(name, cut_pair(*mlp, 1, gelu, communicator));
    } else {
      register_child(name, child->shallow_copy());
    }
  }
}

Variable CutGptBlock::forward(const Variable& x) {
  // ln_1, attn, ln_2, mlp, and with dropout after_attn, after_mlp.
  const auto run = [&](std::size_t child, const Variable& input) {
    return child < children().size() ? (*children()[child].second)(input) : input;
  };
  const Variable y = add(x, run(4, run(1, run(0, x))));
  return add(y, run(5, run(3, run(2, y))));
}

namespace {

// A GPT whose blocks are cut. Its modules run in turn; those under its names hold the parameters.
class CutGpt final : public nn::ModuleOf<CutGpt> {
 public:
  CutGpt(const nn::Gpt& whole, comm::Communicator& communicator) : in_turn_(whole.in_turn()) {
    std::vector<nn::NamedModule> blocks;
    for (std::size_t i = 0; i + 2 < in_turn_.size(); ++i) {
      const auto& block = dynamic_cast<const nn::GptBlock&>(*in_turn_[i + 1]);
      in_turn_[i + 1] = std::make_shared<CutGptBlock>(block, communicator);
      blocks.emplace_back(std::to_string(i), in_turn_[i + 1]);
    }
    const auto& [name, transformer] = whole.children()[0];
    std::vector<nn::NamedModule> children;
    for (const auto& [of_child, child] : transformer->children()) {
      children.emplace_back(
          of_child, of_child == "h" ? nn::Sequential::with_names(blocks) : child->shallow_copy());
    }
    register_child(name, nn::Sequential::with_names(children));
  }

  Variable forward(const Variable& tokens) override {
    Variable y = tokens;
    for (const auto& module : in_turn_) {
      is_training() ? module->train() : module->eval();
      y = (*module)(y);
    }
    return y;
  }

 private:
  std::vector<std::shared_ptr<nn::Module>> in_turn_;  // the embedding, blocks, the last product
};

// Adds what a module and those below it hold: visit_linear(name, layer) for a layer that is cut,
// visit(name, module) for the tensors of any other module.
template <typename VisitLinear, typename Visit>
void walk(const nn::Module& module, const std::string& prefix, const VisitLinear& visit_linear,
          const Visit& visit) {
  if (const auto* linear = dynamic_cast<const CutLinear*>(&module)) {
    visit_linear(prefix, *linear);
    return;
  }
  visit(prefix, module);
  for (const auto& [name, child] : module.children()) {
    walk(*child, prefix + name + ".", visit_linear, visit);
  }
}

std::shared_ptr<nn::Module> cut_sequential(const nn::Module& whole,
                                           comm::Communicator& communicator) {
  std::vector<nn::NamedModule> parts = whole.children();
  bool is_cut = false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (const auto block = std::dynamic_pointer_cast<nn::GptBlock>(parts[i].second)) {
      parts[i].second = std::make_shared<CutGptBlock>(*block, communicator);
      is_cut = true;
    }
    if (i + 2 >= parts.size()) continue;
    const auto first = std::dynamic_pointer_cast<nn::Linear>(parts[i].second);
    const auto between = std::dynamic_pointer_cast<nn::ActivationModule>(parts[i + 1].second);
    const auto second = std::dynamic_pointer_cast<nn::Linear>(parts[i + 2].second);
    if (!first || !between || !second) continue;
    parts[i].second = std::make_shared<CutLinear>(*first, CutLinear::Side::outputs, communicator);
    parts[i + 2].second =
        std::make_shared<CutLinear>(*second, CutLinear::Side::inputs, communicator);
    is_cut = true;
  }
  require(is_cut, ErrorCode::Usage, "tensor_parallel",
          "found nothing to cut: neither Linear, activation, Linear in a row nor a GptBlock");
  return nn::Sequential::with_names(std::move(parts));
}

}  // namespace

std::shared_ptr<nn::Module> tensor_parallel(const nn::Module& whole,
                                            comm::Communicator& communicator) {
  if (const auto* const gpt = dynamic_cast<const nn::Gpt*>(&whole)) {
    return std::make_shared<CutGpt>(*gpt, communicator);
  }
  return cut_sequential(whole, communicator);
}

std::vector<CutParameter> cut_parameters(const nn::Module& part, const std::string& prefix) {
  std::vector<CutParameter> all;
  walk(
      part, prefix,
      [&](const std::string& name, const CutLinear& linear) {
        for (const CutParameter& parameter : linear.cut_parameters(name)) all.push_back(parameter);
      },
      [&](const std::string& name, const nn::Module& module) {
        for (const auto& [own, value] : module.own_parameters()) {
          all.push_back({.name = name + own, .shape = value.shape(), .value = value});
        }
      });
  return all;
}

nn::StateDict whole_state(const nn::Module& part, const std::string& prefix) {
  nn::StateDict state;
  walk(
      part, prefix,
      [&](const std::string& name, const CutLinear& linear) {
        for (const CutParameter& parameter : linear.cut_parameters(name)) {
          const Variable& value = parameter.value;
          const Variable& weight = linear.own_parameters()[0].second;
          state.emplace_back(
              parameter.name,
              parameter.gather(value.defined() ? value.value()
                                               : Tensor::empty(parameter.shape, weight.dtype(),
                                                               weight.device())));
        }
      },
      [&](const std::string& name, const nn::Module& module) {
        for (std::size_t i = 0; i < module.own_parameters().size(); ++i) {
          state.emplace_back(name + module.own_parameters()[i].first, module.unpadded(i));
        }
        for (const auto& [own, buffer] : module.own_buffers()) {
          state.emplace_back(name + own, buffer);
        }
      });
  return state;
}

}  // namespace lockstep::parallel
