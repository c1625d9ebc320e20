// A model cut into consecutive parts: what each stage of a pipeline holds.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <vector>

#include "engine/nn/sequential.h"

namespace lockstep::parallel {

// A layer with parameters, and those without that follow it; a residual block or a GPT block is one
// layer. Modules run one after the other (nn::run_in_turn).
using PipelineLayer = std::vector<nn::NamedModule>;

// The layers of a Sequential, also of those in it, or of a GPT; of any other module, itself. They
// share the model's parameters and buffers, and keep alive no more of it than their own.
std::vector<PipelineLayer> layers_of(const std::shared_ptr<nn::Module>& model);

// The identities of the parameters, and the addresses of the buffers, in a part of a model.
std::set<const void*> contents_of(const PipelineLayer& part);

// A module of nothing but those tensors of the model, under their names in it, such as
// "transformer.h.0.ln_1.bias": what an optimizer updates, and a file holds.
// Throws Error{State} in forward.
std::shared_ptr<nn::Module> tensors_of(const nn::Module& model,
                                       const std::set<const void*>& contents);

}  // namespace lockstep::parallel
