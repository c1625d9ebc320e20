#include "engine/plan/buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/shape.h"

namespace lockstep::plan {
namespace {

// A bucket, and where its last parameter stands in the order.
struct Draft {
  Bucket bucket;
  std::size_t last_place = 0;
};

// The bucket of one (dtype, device) that is filled now, and which limit it has.
struct Lane {
  std::optional<std::size_t> open = {};
  std::size_t payload_bytes = 0;  // bytes in the open one, without gaps
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

void append(Bucket& bucket, std::size_t index, const BucketParameter& parameter,
            std::size_t alignment_bytes) {
  const std::size_t element_size = size_of(parameter.dtype);
  const std::size_t alignment = std::max<std::size_t>(alignment_bytes / element_size, 1);
  const std::size_t offset =
      checked_sum("buckets", bucket.num_elements, alignment - 1) / alignment * alignment;
  bucket.slots.push_back({index, offset, parameter.num_elements});
  bucket.num_elements = checked_sum("buckets", offset, parameter.num_elements);
  checked_product("buckets", bucket.num_elements, element_size);  // its bytes can be counted
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

  std::map<std::pair<DType, Device>, Lane> lanes;
  std::vector<Draft> drafts;
  for (std::size_t place = 0; place < order.size(); ++place) {
    const BucketParameter& parameter = parameters[order[place]];
    Lane& lane = lanes[{parameter.dtype, parameter.device}];
    if (!lane.open) {
      lane.open = drafts.size();
      lane.payload_bytes = 0;
      drafts.push_back({{parameter.dtype, parameter.device, {}, 0}});
    }
    Draft& draft = drafts[*lane.open];
    append(draft.bucket, order[place], parameter, options.alignment_bytes);
    draft.last_place = place;
    lane.payload_bytes += parameter.num_elements * size_of(parameter.dtype);
    if (lane.payload_bytes >= options.byte_limits[lane.limit_index]) {
      lane.open = {};
      lane.limit_index = std::min(lane.limit_index + 1, options.byte_limits.size() - 1);
    }
  }
  std::ranges::sort(drafts, {}, &Draft::last_place);
  BucketPlan plan;
  for (Draft& draft : drafts) plan.buckets.push_back(std::move(draft.bucket));
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
