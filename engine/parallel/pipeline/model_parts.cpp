#include "engine/parallel/pipeline/model_parts.h"

#include "engine/core/error.h"
#include "engine/nn/gpt.h"

namespace lockstep::parallel {
namespace {

using Modules = std::vector<std::shared_ptr<nn::Module>>;

void add_in_turn(const std::shared_ptr<nn::Module>& module, Modules& modules) {
  if (const auto* const gpt = dynamic_cast<const nn::Gpt*>(module.get())) {
    for (const auto& part : gpt->in_turn()) modules.push_back(part);
  } else if (dynamic_cast<const nn::Sequential*>(module.get()) != nullptr) {
    for (const auto& [name, child] : module->children()) add_in_turn(child, modules);
  } else {
    modules.push_back(module);
  }
}

// A node of the tree of names.
class NamedTensors final : public nn::ModuleOf<NamedTensors> {
 public:
  Variable forward(const Variable&) override {
    fail(ErrorCode::State, "pipeline", "these are a stage's tensors, which compute nothing");
  }

  // Takes what is among the contents. Adds the parameters to `taken`, in their order.
  void take(const nn::Module& module, const std::set<const void*>& contents,
            std::vector<Variable>& taken) {
    for (std::size_t i = 0; i < module.own_parameters().size(); ++i) {
      const auto& [name, parameter] = module.own_parameters()[i];
      if (!contents.contains(parameter.identity())) continue;
      const Tensor unpadded = module.unpadded(i);
      const bool has_rows = unpadded.num_dims() > 0;
      register_parameter(name, parameter.value(),
                         has_rows ? parameter.value().size(0) - unpadded.size(0) : 0);
      taken.push_back(parameter);
    }
    for (const auto& [name, buffer] : module.own_buffers()) {
      if (contents.contains(buffer.raw())) register_buffer(name, buffer);
    }
    for (const auto& [name, child] : module.children()) {
      const auto node = std::make_shared<NamedTensors>();
      node->take(*child, contents, taken);
      const bool is_empty =
          node->own_parameters().empty() && node->own_buffers().empty() && node->children().empty();
      if (!is_empty) register_child(name, node);
    }
  }
};

}  // namespace

std::vector<PipelineLayer> layers_of(const std::shared_ptr<nn::Module>& model) {
  Modules modules;
  add_in_turn(model, modules);
  std::vector<PipelineLayer> layers(1);
  bool has_parameters = false;
  for (const std::shared_ptr<nn::Module>& module : modules) {
    const bool is_layer = !module->parameters().empty();
    if (is_layer && has_parameters) layers.emplace_back();
    has_parameters |= is_layer;
    layers.back().emplace_back("", module);
  }
  return layers;
}

std::set<const void*> contents_of(const PipelineLayer& part) {
  std::set<const void*> contents;
  for (const auto& [name, module] : part) {
    for (const Variable& parameter : module->parameters()) contents.insert(parameter.identity());
    for (const Tensor& buffer : module->buffers()) contents.insert(buffer.raw());
  }
  return contents;
}

std::shared_ptr<nn::Module> tensors_of(const nn::Module& model,
                                       const std::set<const void*>& contents) {
  const auto root = std::make_shared<NamedTensors>();
  std::vector<Variable> taken;
  root->take(model, contents, taken);
  root->set_parameters(taken);
  return root;
}

}  // namespace lockstep::parallel
