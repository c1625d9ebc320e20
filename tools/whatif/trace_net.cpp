#include "tools/whatif/trace_net.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/trace/breakdown.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

std::vector<Collective> gradients_of_last_step(const RankBreakdown& rank) {
  std::vector<Collective> gradients;
  for (const CollectiveCall& call : rank.calls) {
    const std::string& kind = call.collective.kind;
    if (call.step + 1 != rank.steps.size() || (kind != "all_reduce" && kind != "reduce_scatter")) {
      continue;
    }
    require(call.collective.num_bytes > 0, ErrorCode::Io, "predict",
            "'{}' doesn't say how large its messages are: record it with record_shapes=True",
            shown(rank.trace.path));
    gradients.push_back(call.collective);
  }
  return gradients;
}

// A layer for each message, in forward's order.
std::vector<LayerShape> shapes_of(const RankBreakdown& rank,
                                  const std::vector<Collective>& gradients) {
  const Intervals computation =
      united(Intervals(rank.trace.computation.begin(), rank.trace.computation.end()));
  const auto computed = [&](double begin, double end) {
    return total_seconds(within(computation, {begin, std::max(begin, end)}));
  };
  const double begin = rank.trace.steps.back().time.begin;
  double backward = 2 * computed(begin, gradients.back().time.begin) / 3;
  std::vector<LayerShape> shapes;
  for (std::size_t i = gradients.size(); i-- > 0;) {
    const double since = i > 0 ? gradients[i - 1].time.begin : 0;
    // The first message's layers have what is left of backward; a little, so that they have work.
    const double work = i > 0 ? computed(since, gradients[i].time.begin) : std::max(backward, 1e-6);
    backward -= work;
    shapes.push_back({fmt::format("bucket{}", i), gradients[i].num_bytes / 4, 0, work});
  }
  return shapes;
}

// The peak of the preset whose device this GPU's name has; empty if there is none.
std::optional<double> peak_of_gpu(const std::string& gpu, Precision precision) {
  for (const std::string& name : predict::preset_names()) {
    const predict::DeviceProfile device = predict::find_topology(name).device;
    if (gpu.find(device.name) != std::string::npos) return peak_flops(device, precision);
  }
  return {};
}

}  // namespace

TraceNet net_of_trace(const RankBreakdown& rank, const predict::DeviceProfile& device,
                      Precision precision) {
  TraceNet result;
  Net& net = result.net;
  net.precision = precision;
  const std::vector<Collective> gradients = gradients_of_last_step(rank);
  double bytes = 0, smallest = 1e300;
  for (const Collective& each : gradients) {
    bytes += each.num_bytes;
    smallest = std::min(smallest, each.num_bytes);
  }
  if (!gradients.empty()) {
    net.parameters = bytes / 4;
    net.shapes = shapes_of(rank, gradients);
    result.smallest_bucket_mib = smallest / (1 << 20);
  }
  const TraceParts parts = mean(rank.steps);
  const double rest = parts.step() - parts.exposed_comm - parts.computation;
  const auto peak = peak_of_gpu(rank.trace.gpu, precision);
  const double scale = peak ? *peak / peak_flops(device, precision) : 1;
  net.step_seconds = rest + scale * parts.computation;
  net.name = shown(rank.trace.path);
  if (!gradients.empty()) {
    net.name +=
        fmt::format(" ({} of gradients in {})", format_bytes(static_cast<std::size_t>(bytes)),
                    count_text(gradients.size(), "bucket"));
  }
  const std::string scaled =
      peak ? fmt::format("times {:.2f} for the peaks of {} and {} (no band covers that)", scale,
                         shown(rank.trace.gpu), device.name)
           : "as it was there, since no peak is known for it (no band covers that)";
  net.source = fmt::format(
      "{} for a step on one GPU: the trace's computation, {}, {}, and its {} of copies, loader, "
      "host "
      "and idle",
      trace::format_seconds(*net.step_seconds), trace::format_seconds(parts.computation),
      peak && scale == 1 ? "on the same GPU" : scaled, trace::format_seconds(rest));
  return result;
}

}  // namespace lockstep::tools
