#include "engine/parallel/sharded/layout.h"

#include <algorithm>
#include <optional>

#include "engine/core/error.h"
#include "engine/nn/layers.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kAlignment = 16;  // elements

std::size_t rounded_up(std::size_t size, std::size_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

void find_layers(const nn::Module& module, std::vector<nn::Module*>& layers) {
  const bool is_sequence = dynamic_cast<const nn::Sequential*>(&module) != nullptr;
  for (const auto& [name, child] : module.children()) {
    const bool is_layer = is_sequence && dynamic_cast<nn::Sequential*>(child.get()) == nullptr;
    if (!is_layer) {
      find_layers(*child, layers);
    } else if (std::ranges::count(layers, child.get()) == 0) {
      layers.push_back(child.get());
    }
  }
}

// How often a module and those below it registered the parameter.
std::size_t num_uses(const nn::Module& module, const Variable& parameter) {
  std::size_t uses = 0;
  for (const auto& [name, own] : module.own_parameters()) uses += own.is_same(parameter) ? 1 : 0;
  for (const auto& [name, child] : module.children()) uses += num_uses(*child, parameter);
  return uses;
}

}  // namespace

std::vector<UnitLayout> unit_layouts(nn::Module& module, std::size_t world_size) {
  std::vector<nn::Module*> modules{&module};
  find_layers(module, modules);
  std::vector<UnitLayout> units(modules.size());
  for (std::size_t i = 0; i < modules.size(); ++i) units[i].module = modules[i];
  std::optional<Variable> first;
  for (const nn::NamedParameter& entry : module.named_parameters()) {
    const Variable& parameter = entry.second;
    if (!parameter.requires_grad()) continue;
    if (!first) first = parameter;
    require(parameter.device() == first->device() && parameter.dtype() == first->dtype(),
            ErrorCode::Usage, "sharded",
            "all parameters must be of one dtype on one device; {} is {} on {}, others {} on {}",
            entry.first, to_string(parameter.dtype()), to_string(parameter.device()),
            to_string(first->dtype()), to_string(first->device()));
    const auto owner = std::find_if(modules.begin() + 1, modules.end(), [&](nn::Module* layer) {
      const std::size_t uses = num_uses(*layer, parameter);
      return uses > 0 && uses == num_uses(module, parameter);
    });
    UnitLayout& unit =
        units[owner == modules.end() ? 0 : static_cast<std::size_t>(owner - modules.begin())];
    unit.parameters.push_back(entry);
    unit.offsets.push_back(unit.num_elements);
    unit.num_elements += rounded_up(parameter.value().num_elements(), kAlignment);
  }
  require(first.has_value(), ErrorCode::Usage, "sharded",
          "there is nothing to shard: no parameter of the module requires a gradient");
  std::erase_if(units, [](const UnitLayout& unit) { return unit.parameters.empty(); });
  for (UnitLayout& unit : units) {
    unit.num_elements = rounded_up(unit.num_elements, kAlignment * world_size);
  }
  return units;
}

}  // namespace lockstep::parallel
