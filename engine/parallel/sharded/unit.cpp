#include "engine/parallel/sharded/unit.h"

#include <algorithm>
#include <utility>

#include "engine/core/error.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/observer.h"
#include "engine/trace/span.h"

namespace lockstep::parallel {
namespace {

void wait_for(comm::Work& work, const Tensor& tensor, const char* name) {
  const trace::ScopedSpan span(trace::Lane::host, trace::Category::communication, name);
  const runtime::DeviceSpan on_device(tensor.stream(), trace::Lane::compute,
                                      trace::Category::communication, name);
  std::exchange(work, {}).wait();
}

}  // namespace

Unit::Unit(UnitLayout layout, comm::Communicator& communicator, ShardDepth depth)
    : layout_(std::move(layout)), communicator_(communicator), depth_(depth) {
  const Tensor& first = layout_.parameters[0].second.value();
  whole_ = Tensor::zeros({layout_.num_elements}, first.dtype(), first.device());
  grads_ = Tensor::zeros_like(whole_);
  const std::size_t part =
      layout_.num_elements / static_cast<std::size_t>(communicator.world_size());
  const std::size_t begin = static_cast<std::size_t>(communicator.rank()) * part;
  for (std::size_t i = 0; i < layout_.parameters.size(); ++i) {
    auto& [name, parameter] = layout_.parameters[i];
    const Tensor place = whole_.slice(layout_.offsets[i], parameter.shape());
    place.copy_from(parameter.value());
    parameter.clear_grad();
    parameter.set_value(place);
    parameter.set_grad_slot(grads_.slice(layout_.offsets[i], parameter.shape()));
  }
  shard_ = whole_.rows(begin, begin + part);
  if (frees_parameters()) shard_ = shard_.clone();
  for (std::size_t i = 0; i < layout_.parameters.size(); ++i) {
    const auto& [name, parameter] = layout_.parameters[i];
    const std::size_t from = std::max(layout_.offsets[i], begin);
    const std::size_t to =
        std::min(layout_.offsets[i] + parameter.value().num_elements(), begin + part);
    if (from >= to) continue;
    pieces_.push_back({name, parameter.shape(), from - layout_.offsets[i], from - begin,
                       Variable(shard_.rows(from - begin, to - begin), RequiresGrad::yes)});
  }
  free_parameters();
  if (frees_gradients()) {
    grads_.storage()->free_memory();
    has_grad_memory_ = false;
  }
  forget_collected();
}

void Unit::start_gather() {
  if (is_whole_ || gathered_.defined()) return;
  gathered_ = frees_parameters() ? Tensor::empty_like(whole_) : whole_;
  gather_ = communicator_.all_gather(shard_, gathered_, comm::Launch::async);
}

void Unit::gather() {
  if (is_whole_) return;
  start_gather();
  wait_for(gather_, shard_, "wait for all-gather");
  if (frees_parameters()) whole_.storage()->take_memory(*gathered_.storage());
  gathered_ = {};
  is_whole_ = true;
}

void Unit::free_parameters() {
  if (!frees_parameters() || !is_whole_) return;
  if (trace::Observer* observer = trace::observer_of_arrivals()) {
    observer->parameters_freed(trace::host_values(shard_));
  }
  whole_.storage()->free_memory();
  is_whole_ = false;
}

void Unit::expect_step() {
  free_parameters();
  whole_.bump_version();  // a graph of before the step must not take what is gathered after it
  is_whole_ = false;
}

void Unit::begin_backward() {
  if (has_grad_memory_) return;
  grads_.storage()->take_memory(*Tensor::empty_like(whole_).storage());
  has_grad_memory_ = true;
}

bool Unit::collect(std::size_t parameter) {
  Variable& variable = layout_.parameters[parameter].second;
  const Tensor& slot = variable.grad_slot();
  if (!variable.grad().shares_memory_with(slot)) {
    slot.copy_from(variable.grad());
    variable.set_grad(slot);
  }
  is_collected_[parameter] = true;
  return std::ranges::count(is_collected_, false) == 0;
}

void Unit::start_reduce() {
  forget_collected();
  reduced_ = Tensor::empty_like(shard_);
  reduce_ = communicator_.reduce_scatter(
      grads_, reduced_, {.op = comm::ReduceOp::average, .launch = comm::Launch::async});
}

void Unit::finish_reduce() {
  if (!reduced_.defined()) return;
  wait_for(reduce_, shard_, "wait for reduce-scatter");
  for (ShardPiece& piece : pieces_) {
    const Tensor mean = reduced_.slice(piece.place, piece.value.shape());
    piece.value.grad().defined() ? void(piece.value.grad().add_(mean)) : piece.value.set_grad(mean);
  }
  reduced_ = {};
  for (auto& [name, parameter] : layout_.parameters) parameter.clear_grad();
  if (!frees_gradients()) return;
  grads_.storage()->free_memory();
  has_grad_memory_ = false;
}

std::string Unit::missing() const {
  std::string names;
  if (std::ranges::count(is_collected_, true) == 0) return names;
  for (std::size_t i = 0; i < is_collected_.size(); ++i) {
    if (!is_collected_[i]) names += (names.empty() ? "" : ", ") + layout_.parameters[i].first;
  }
  return names;
}

}  // namespace lockstep::parallel
