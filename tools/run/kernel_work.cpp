#include "tools/run/kernel_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "engine/trace/breakdown.h"
#include "simulate/slow_motion/paced_backend.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

class Counter final : public slow_motion::KernelListener {
 public:
  explicit Counter(const std::optional<CardSpeed>& card) : card_(card) {}

  bool runs_kernels() const override { return false; }

  void on_kernel(kernels::Stream&, const slow_motion::KernelSizes& kernel) override {
    const predict::LayerShape product = kernel.product.value_or(predict::LayerShape{});
    KernelWork call{1, 2 * kernel.num_products * product.rows * product.inputs * product.outputs,
                    kernel.moved_bytes};
    if (card_) {
      call.least_seconds =
          std::max(call.flops / card_->flops_per_second, call.bytes / card_->bytes_per_second);
    }
    work[kernel.name] += call;
  }

  std::map<std::string, KernelWork> work;

 private:
  std::optional<CardSpeed> card_;
};

std::string work_line(const std::string& name, const KernelWork& work, bool has_card) {
  const std::string flops = work.flops > 0 ? fmt::format("{:.2f}", work.flops * 1e-9) : "";
  const std::string per_byte = work.flops > 0 ? fmt::format("{:.1f}", work.flops / work.bytes) : "";
  std::string line = fmt::format("{:<24}{:>7}{:>12}{:>12.2f}{:>11}", name, work.num_calls, flops,
                                 work.bytes * 1e-6, per_byte);
  if (has_card) line += fmt::format("{:>12}", trace::format_seconds(work.least_seconds));
  return line + "\n";
}

}  // namespace

KernelWork& KernelWork::operator+=(const KernelWork& more) {
  num_calls += more.num_calls;
  flops += more.flops;
  bytes += more.bytes;
  least_seconds += more.least_seconds;
  return *this;
}

std::map<std::string, KernelWork> count_work(SampleStep& step, Device device,
                                             const std::optional<CardSpeed>& card) {
  Counter counter(card);
  const slow_motion::Listening listening(device.type, counter);
  step.run();  // makes gradients and the optimizer's state
  counter.work.clear();
  step.run();
  return counter.work;
}

KernelWork total(const std::map<std::string, KernelWork>& work) {
  KernelWork sum;
  for (const auto& [name, kernel] : work) sum += kernel;
  return sum;
}

std::string work_table(const std::map<std::string, KernelWork>& work,
                       const std::optional<CardSpeed>& card) {
  std::string table = fmt::format("{:<24}{:>7}{:>12}{:>12}{:>11}{}\n", "kernel", "calls", "GFLOP",
                                  "MB", "FLOP/byte", card ? "    at least" : "");
  std::vector<std::pair<std::string, KernelWork>> lines(work.begin(), work.end());
  std::ranges::stable_sort(lines, std::greater{},
                           [](const auto& line) { return line.second.bytes; });
  for (const auto& [name, kernel] : lines) table += work_line(name, kernel, card.has_value());
  const KernelWork all = total(work);
  table += work_line("all", all, card.has_value());
  if (!card) return table;
  return table +
         wrap(fmt::format(
             "{}: {:.4g} TFLOP/s and {:.4g} TB/s by its data sheet. There a product with fewer "
             "than {:.0f} FLOP for each byte waits for memory. Products alone would take {}, all "
             "bytes alone {}. What the card's cache keeps may be faster.",
             card->name, card->flops_per_second * 1e-12, card->bytes_per_second * 1e-12,
             card->flops_per_second / card->bytes_per_second,
             trace::format_seconds(all.flops / card->flops_per_second),
             trace::format_seconds(all.bytes / card->bytes_per_second))) +
         "\n";
}

}  // namespace lockstep::tools
