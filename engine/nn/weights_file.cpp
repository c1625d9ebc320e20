#include "engine/nn/weights_file.h"

#include <cstring>

#include "engine/audit/models.h"
#include "engine/audit/switch.h"
#include "engine/checkpoint/safetensors.h"

namespace lockstep::nn {

void save_weights(const std::filesystem::path& path, const Module& module) {
  save_weights(path, state_dict(module));
}

void save_weights(const std::filesystem::path& path, const StateDict& state) {
  std::vector<Tensor> on_host;  // keeps the bytes alive that the views look at
  std::vector<checkpoint::NamedArrayView> arrays;
  for (const auto& [name, tensor] : state) {
    tensor.stream().synchronize();
    const Tensor& host = on_host.emplace_back(tensor.to(Device{}));
    host.stream().synchronize();
    arrays.push_back({name,
                      host.dtype(),
                      host.shape(),
                      {static_cast<const std::byte*>(host.raw()), host.num_bytes()}});
  }
  if (audit::is_on()) audit::note_saved(path.string());
  checkpoint::write_safetensors(path, arrays, {{"format", "pt"}});
}

StateDict load_weights(const std::filesystem::path& path) {
  StateDict state;
  for (const checkpoint::NamedArray& array : checkpoint::read_safetensors(path).arrays) {
    Tensor tensor = Tensor::empty(array.shape, array.dtype, Device{});
    if (!array.bytes.empty()) std::memcpy(tensor.raw(), array.bytes.data(), array.bytes.size());
    state.emplace_back(array.name, std::move(tensor));
  }
  return state;
}

}  // namespace lockstep::nn
