#include "engine/plan/buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/shape.h"

namespace lockstep::plan {
namespace {

// A bucket while it is filled, and when it is closed.
struct Draft {
  Bucket bucket;
  std::size_t payload_bytes = 0;  // without gaps
  std::size_t last_place = 0;     // in the order in which parameters enter
};

// The open bucket of one (dtype, device), and which limit it has.
struct Lane {
  Draft draft;
  std::size_t limit_index = 0;
};

void require_permutation(std::span<const std::size_t> order, std::size_t num_parameters) {
  require(order.size() == num_parameters, ErrorCode::Usage, "buckets",
          "the order must name each of {} parameters once, found {} indices", num_parameters,
          order.size());
  std::vector<char> seen(num_parameters, 0);
  for (const std::size_t index : order) {
    require(index < num_parameters && !seen[index], ErrorCode::Usage, "buckets",
            "the order must name each of {} parameters once, found {} {}", num_parameters, index,
            index < num_parameters ? "twice" : "in it");
    seen[index] = 1;
  }
}

Lane& lane_of(std::vector<Lane>& lanes, const BucketParameter& parameter) {
  const auto found = std::ranges::find_if(lanes, [&](const Lane& lane) {
    return lane.draft.bucket.dtype == parameter.dtype &&
           lane.draft.bucket.device == parameter.device;
  });
  if (found != lanes.end()) return *found;
  Lane lane;
  lane.draft.bucket.dtype = parameter.dtype;
  lane.draft.bucket.device = parameter.device;
  return lanes.emplace_back(std::move(lane));
}

void append(Draft& draft, std::size_t place, std::size_t index, const BucketParameter& parameter,
            std::size_t alignment_bytes) {
  Bucket& bucket = draft.bucket;
  draft.last_place = place;
  const std::size_t element_size = size_of(parameter.dtype);
  const std::size_t alignment = std::max<std::size_t>(alignment_bytes / element_size, 1);
  const std::size_t offset =
      checked_sum("buckets", bucket.num_elements, alignment - 1) / alignment * alignment;
  bucket.slots.push_back({index, offset, parameter.num_elements});
  bucket.num_elements = checked_sum("buckets", offset, parameter.num_elements);
  checked_product("buckets", bucket.num_elements, element_size);  // its bytes can be counted
  draft.payload_bytes += parameter.num_elements * element_size;
}

// Takes the bucket out of the lane; a new, empty one of the same kind stays.
Draft close(Lane& lane) {
  Draft closed = std::move(lane.draft);
  lane.draft = {};
  lane.draft.bucket.dtype = closed.bucket.dtype;
  lane.draft.bucket.device = closed.bucket.device;
  return closed;
}

}  // namespace

std::vector<std::size_t> Bucket::parameters() const {
  std::vector<std::size_t> indices;
  indices.reserve(slots.size());
  for (const BucketSlot& slot : slots) indices.push_back(slot.parameter);
  return indices;
}

std::vector<std::size_t> reverse_order(std::size_t num_parameters) {
  std::vector<std::size_t> order(num_parameters);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

BucketPlan bucket_plan(std::span<const BucketParameter> parameters,
                       std::span<const std::size_t> order, const BucketOptions& options) {
  require_permutation(order, parameters.size());
  require(!options.byte_limits.empty(), ErrorCode::Usage, "buckets",
          "needs at least one byte limit, found none");
  require(std::has_single_bit(options.alignment_bytes), ErrorCode::Usage, "buckets",
          "alignment must be a power of two, found {} bytes", options.alignment_bytes);

  std::vector<Lane> lanes;
  std::vector<Draft> closed;
  for (std::size_t place = 0; place < order.size(); ++place) {
    const BucketParameter& parameter = parameters[order[place]];
    Lane& lane = lane_of(lanes, parameter);
    append(lane.draft, place, order[place], parameter, options.alignment_bytes);
    if (lane.draft.payload_bytes >= options.byte_limits[lane.limit_index]) {
      closed.push_back(close(lane));
      lane.limit_index = std::min(lane.limit_index + 1, options.byte_limits.size() - 1);
    }
  }
  for (Lane& lane : lanes) {
    if (!lane.draft.bucket.slots.empty()) closed.push_back(close(lane));
  }
  std::ranges::sort(closed, {}, &Draft::last_place);
  BucketPlan plan;
  for (Draft& draft : closed) plan.buckets.push_back(std::move(draft.bucket));
  return plan;
}

std::string to_string(const BucketPlan& plan) {
  std::string text;
  const auto out = std::back_inserter(text);
  std::size_t number = 0;
  for (const Bucket& bucket : plan.buckets) {
    fmt::format_to(out, "bucket {}: {} on {}, {} parameters, {} B\n", number++,
                   to_string(bucket.dtype), to_string(bucket.device), bucket.slots.size(),
                   bucket.num_bytes());
    for (const BucketSlot& slot : bucket.slots) {
      fmt::format_to(out, "  parameter {}: elements [{}, {}), {} B\n", slot.parameter, slot.offset,
                     slot.offset + slot.num_elements, slot.num_elements * size_of(bucket.dtype));
    }
  }
  return text;
}

}  // namespace lockstep::plan
