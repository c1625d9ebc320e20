#include "engine/runtime/transfer.h"

#include "engine/runtime/cuda_device.h"
#include "engine/runtime/step_graph.h"

namespace lockstep::runtime {
namespace {

bool is_cuda(const LogicalDevice& device) {
  return device.device().type == DeviceType::cuda;
}

}  // namespace

void copy_between(Destination to, Source from, std::size_t num_bytes) {
  if (num_bytes == 0) return;
  Stream& writer = to.device.compute_stream();
  Stream& reader = from.device.compute_stream();
  if (!is_cuda(from.device)) {
    copy_on_cuda_stream(writer, to.data, from.data, num_bytes);
    // A copy that is captured happens at each launch: there is nothing to wait for now.
    if (is_pinned(from.data) && !is_capturing_step()) writer.synchronize();
  } else if (!is_cuda(to.device)) {
    copy_on_cuda_stream(reader, to.data, from.data, num_bytes);
    reader.synchronize();
  } else {
    if (&writer != &reader) writer.wait(reader.record());
    copy_on_cuda_stream(writer, to.data, from.data, num_bytes);
    if (&writer != &reader) reader.wait(writer.record());
  }
}

}  // namespace lockstep::runtime
