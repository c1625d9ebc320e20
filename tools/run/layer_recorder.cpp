#include "tools/run/layer_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/runtime/logical_device.h"
#include "engine/runtime/steady_time.h"
#include "tools/run/step_statistics.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

// Finds the free blocks of these sizes by asking the pool until it has to go to the system.
std::set<const void*> free_blocks(runtime::MemoryPool& pool, const std::set<std::size_t>& sizes) {
  std::set<const void*> found;
  std::vector<runtime::MemoryPool::Block> taken;
  for (const std::size_t size : sizes) {
    const std::size_t before = pool.statistics().num_system_allocations;
    while (true) {
      taken.push_back(pool.allocate(size));
      if (pool.statistics().num_system_allocations > before) break;
      found.insert(taken.back().data);
    }
  }
  for (const runtime::MemoryPool::Block& block : taken) pool.release(block);
  return found;
}

}  // namespace

LayerRecorder::LayerRecorder(const nn::Module& model) {
  for (const auto& [name, parameter] : model.named_parameters()) {
    const std::string layer = name.substr(0, name.rfind('.'));
    if (layers_.empty() || layers_.back().name != layer) {
      layers_.push_back({layer, 0, 0, 0});
    }
    layers_.back().parameter_bytes += parameter.value().num_bytes();
    layer_of_[parameter.value().raw()] = layers_.size() - 1;
    device_ = parameter.device();
  }
  for (const auto& [name, buffer] : model.named_buffers()) {
    const std::string layer = name.substr(0, name.rfind('.'));
    const auto found = std::ranges::find(layers_, layer, &FileLayer::name);
    if (found == layers_.end()) continue;  // a module without parameters
    found->buffer_bytes.push_back(buffer.num_bytes());
    layer_of_[buffer.raw()] = static_cast<std::size_t>(found - layers_.begin());
  }
  times_.resize(layers_.size());
  memory_.resize(layers_.size());
}

double LayerRecorder::seconds_since_mark() {
  const runtime::Time begin = std::exchange(mark_, runtime::now());
  return runtime::to_seconds(mark_ - begin);
}

void LayerRecorder::begin(Pass pass) {
  pass_ = pass;
  current_ = 0;
  pending_.clear();
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    FileLayer& layer = layers_[i];
    (pass == Pass::forward ? layer.forward_bytes : layer.backward_bytes).clear();
    (pass == Pass::forward ? times_[i].forward : times_[i].backward).push_back(0);
  }
  mark_ = runtime::now();
}

// Until the next layer begins, every kernel belongs to the current one.
void LayerRecorder::note_forward(const slow_motion::KernelSizes& kernel, Product kind) {
  FileLayer& layer = layers_[current_];
  const auto rows = static_cast<double>(num_rows_);
  times_[current_].forward.back() += seconds_since_mark();
  if (kernel.product) {
    predict::LayerShape& product =
        (kind == Product::of_parameters ? layer.product : layer.attention).emplace(*kernel.product);
    product.rows /= rows;
    product.image_bytes /= rows;
  }
  if (kernel.traffic_bytes > 0) layer.forward_bytes.push_back(kernel.traffic_bytes / rows);
  const std::size_t out = kernel.writes.empty() ? 0 : kernel.writes[0].num_bytes;
  if (out >= num_rows_ * sizeof(float)) layer.output_bytes = static_cast<double>(out) / rows;
  for (const slow_motion::Memory& memory : kernel.writes) {
    if (memory.num_bytes == 0 || layer_of_.contains(memory.data)) continue;
    written_[memory.data] = {current_, memory.num_bytes};
  }
}

// Every kernel since the previous layer belongs to this one.
void LayerRecorder::end_backward(std::size_t layer) {
  times_[layer].backward.back() += seconds_since_mark();
  std::vector<double>& bytes = layers_[layer].backward_bytes;
  for (const double kernel : pending_) bytes.push_back(kernel / static_cast<double>(num_rows_));
  pending_.clear();
}

void LayerRecorder::on_kernel(kernels::Stream& stream, const slow_motion::KernelSizes& kernel) {
  stream.synchronize();
  const auto owned = std::ranges::find_if(kernel.reads, [&](const slow_motion::Memory& memory) {
    return layer_of_.contains(memory.data);
  });
  const bool is_own = owned != kernel.reads.end();
  std::size_t own = is_own ? layer_of_.at(owned->data) : current_;
  if (pass_ == Pass::forward) {
    if (own < current_) tied_[kernel.reads[0].data] = own = current_;
    current_ = own;
    note_forward(kernel, is_own ? Product::of_parameters : Product::of_attention);
  } else {
    const auto tied = is_own ? tied_.find(kernel.reads[0].data) : tied_.end();
    if (tied != tied_.end()) own = tied->second;
    if (kernel.traffic_bytes > 0) pending_.push_back(kernel.traffic_bytes);
    if (is_own) end_backward(own);
  }
  std::size_t& scratch = memory_[own].scratch_bytes;
  scratch = std::max(scratch, kernel.scratch_bytes);
}

Variable LayerRecorder::run_forward(const std::function<Variable()>& forward) {
  written_.clear();
  tied_.clear();
  const slow_motion::Listening listening(device_.type, *this);
  begin(Pass::forward);
  return forward();
}

void LayerRecorder::record(std::size_t num_rows, const std::function<Variable()>& forward) {
  num_rows_ = num_rows;
  const Variable y = run_forward(forward);
  const Tensor grad = Tensor::full(y.shape(), 1.0, y.dtype(), y.device());
  const slow_motion::Listening listening(device_.type, *this);
  begin(Pass::backward);
  y.backward(grad);
  end_backward(0);
}

std::vector<FileLayer> LayerRecorder::layers() const {
  std::vector<FileLayer> layers = layers_;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].forward_seconds = median(times_[i].forward);
    layers[i].backward_seconds = median(times_[i].backward);
  }
  return layers;
}

std::vector<LayerMemory> LayerRecorder::memory(const std::function<Variable()>& forward) {
  const Variable y = run_forward(forward);
  std::set<std::size_t> sizes;
  for (const auto& [data, written] : written_) sizes.insert(written.num_bytes);
  const std::set<const void*> free = free_blocks(runtime::logical_device(device_).memory(), sizes);
  for (LayerMemory& layer : memory_) layer.kept_bytes = 0;
  for (const auto& [data, written] : written_) {
    if (!free.contains(data)) memory_[written.layer].kept_bytes += written.num_bytes;
  }
  return memory_;
}

std::string memory_table(std::span<const FileLayer> layers, std::span<const LayerMemory> memory,
                         std::size_t input_bytes, std::size_t peak_bytes) {
  std::string table = fmt::format("{:<24}{:>11}{:>11}{:>11}{:>12}{:>11}\n", "layer", "parameters",
                                  "gradients", "momentum", "activations", "patches");
  const auto line = [&](const std::string& name, std::size_t parameters, const LayerMemory& held) {
    const std::string each = format_bytes(parameters);
    table += fmt::format("{:<24}{:>11}{:>11}{:>11}{:>12}{:>11}\n", name, each, each, each,
                         format_bytes(held.kept_bytes), format_bytes(held.scratch_bytes));
  };
  std::size_t parameters = 0;
  LayerMemory all{input_bytes, 0};
  line("(batch)", 0, all);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    line(layers[i].name, layers[i].parameter_bytes, memory[i]);
    parameters += layers[i].parameter_bytes;
    all.kept_bytes += memory[i].kept_bytes;
    all.scratch_bytes = std::max(all.scratch_bytes, memory[i].scratch_bytes);  // one at a time
  }
  line("all", parameters, all);
  return table +
         wrap(fmt::format(
             "total: {}; a step's measured peak: {} (it holds the activations' gradients "
             "too, but not all of this at once)",
             format_bytes(3 * parameters + all.kept_bytes + all.scratch_bytes),
             format_bytes(peak_bytes))) +
         "\n";
}

}  // namespace lockstep::tools
