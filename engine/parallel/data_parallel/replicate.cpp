#include "engine/parallel/data_parallel/replicate.h"

#include "engine/core/error.h"
#include "engine/parallel/data_parallel/broadcast.h"

namespace lockstep::parallel {

void require_on_device(const nn::Module& module, Device device) {
  const auto check = [device](Device found, const std::string& name) {
    if (found == device) return;
    fail(ErrorCode::Device, "data_parallel",
         "module must have its parameters and buffers on device {} (device_ids[0]) but found one "
         "of them on device {}: {} (older texts: all tensors must be on devices[0]); move the "
         "module with to({}) first",
         to_string(device), to_string(found), name, to_string(device));
  };
  for (const auto& [name, parameter] : module.named_parameters()) check(parameter.device(), name);
  for (const auto& [name, buffer] : module.named_buffers()) check(buffer.device(), name);
}

std::vector<std::shared_ptr<nn::Module>> replicate(const nn::Module& module,
                                                   const std::vector<Device>& devices) {
  require(!devices.empty(), ErrorCode::Usage, "replicate", "needs at least one device");
  const std::vector<Tensor> buffers = module.buffers();
  require_on_device(module, devices[0]);
  const auto parameters = broadcast_coalesced(module.parameters(), devices);
  std::vector<std::shared_ptr<nn::Module>> replicas;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    std::shared_ptr<nn::Module> replica = module.shallow_copy();
    replica->set_parameters(parameters[d]);
    if (d > 0 && !buffers.empty()) {
      std::vector<Tensor> copies;
      for (const Tensor& buffer : buffers) copies.push_back(buffer.to(devices[d]));
      replica->set_buffers(copies);
    }
    replicas.push_back(std::move(replica));
  }
  return replicas;
}

std::shared_ptr<nn::Module> copy_module(const nn::Module& module, Device device) {
  std::vector<Variable> parameters;
  for (const Variable& original : module.parameters()) {
    parameters.emplace_back(original.value().to(device),
                            original.requires_grad() ? RequiresGrad::yes : RequiresGrad::no);
  }
  std::vector<Tensor> buffers;
  for (const Tensor& buffer : module.buffers()) buffers.push_back(buffer.to(device));
  const std::shared_ptr<nn::Module> replica = module.shallow_copy();
  replica->set_parameters(parameters);
  replica->set_buffers(buffers);
  return replica;
}

}  // namespace lockstep::parallel
