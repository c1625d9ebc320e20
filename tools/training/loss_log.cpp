#include "tools/training/loss_log.h"

#include "engine/runtime/cuda_device.h"

namespace lockstep::tools {

void LossLog::push(std::size_t step, std::size_t num_rows, const Tensor& sum) {
  if (sum.device().type == DeviceType::cpu) {
    on_loss_({step, num_rows, sum.item()});
    return;
  }
  if (num_pushed_ - num_reported_ == kMaxLate) report_oldest();
  Pending& pending = pending_[num_pushed_++ % kMaxLate];
  pending.loss = {step, num_rows, 0};
  if (!pending.pinned.defined() || pending.pinned.dtype() != sum.dtype()) {
    pending.pinned = Tensor::empty_pinned({}, sum.dtype());
    pending.pinned.storage()->record_use(sum.stream());  // an error may leave copies on their way
  }
  runtime::copy_on_cuda_stream(sum.stream(), pending.pinned.raw(), sum.raw(), sum.num_bytes());
  pending.arrived = sum.stream().record();
  while (num_reported_ < num_pushed_ && pending_[num_reported_ % kMaxLate].arrived->has_passed()) {
    report_oldest();
  }
}

void LossLog::drain() {
  while (num_reported_ < num_pushed_) report_oldest();
}

void LossLog::report_oldest() {
  Pending& oldest = pending_[num_reported_++ % kMaxLate];
  oldest.arrived->wait();
  oldest.loss.sum = oldest.pinned.item();
  on_loss_(oldest.loss);
}

}  // namespace lockstep::tools
