// The bucket plan: decides which gradients are all-reduced together.
//
// One all-reduce per parameter pays the latency many times over; a single one for all of them can
// only start when backward is done. Buckets lie between: parameters enter in the order in which
// their gradients become ready, and a bucket is all-reduced while backward goes on.
//
// Rules: a bucket holds one (dtype, device); parameters are appended; a bucket closes when it holds
// at least its limit of bytes. The first bucket of each (dtype, device) has the first limit, the
// next one the second, and so on; later ones have the last limit. Buckets that are still open at
// the end close too.
//
// Source: compute_bucket_assignment_by_size in PyTorch's torch/csrc/distributed/c10d/reducer.cpp.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/core/device.h"
#include "engine/core/dtype.h"

namespace lockstep::plan {

// The plan's facts about a parameter.
struct BucketParameter {
  std::size_t num_elements = 0;
  DType dtype = DType::float32;
  Device device;
};

// The place of one parameter's gradient inside its bucket, in elements.
struct BucketSlot {
  std::size_t parameter = 0;  // index into the list of parameters
  std::size_t offset = 0;
  std::size_t num_elements = 0;

  bool operator==(const BucketSlot&) const = default;
};

struct Bucket {
  DType dtype = DType::float32;
  Device device;
  std::vector<BucketSlot> slots;  // ordered as they were appended
  std::size_t num_elements = 0;   // size of the buffer, with gaps for alignment

  std::size_t num_bytes() const { return num_elements * size_of(dtype); }
  std::vector<std::size_t> parameters() const;
  bool operator==(const Bucket&) const = default;
};

// In the order in which the buckets are launched: the bucket that is complete first comes first, so
// that none waits for a later gradient.
struct BucketPlan {
  std::vector<Bucket> buckets;

  bool operator==(const BucketPlan&) const = default;
};

struct BucketOptions {
  std::vector<std::size_t> byte_limits = {std::size_t{1} << 20, std::size_t{25} << 20};
  // Every slot begins at a multiple of this many bytes; a power of two. 1: packed. The gaps count
  // in num_elements and are all-reduced too (fill them with zeros once), but they do not count for
  // the limits.
  std::size_t alignment_bytes = 1;
};

// num_parameters-1, ..., 1, 0: gradients become ready roughly in reverse order of registration.
std::vector<std::size_t> reverse_order(std::size_t num_parameters);

// order holds every index into parameters once, in the order in which they enter.
// Throws Error{Usage} if it does not, if byte_limits is empty, or if alignment_bytes is not a power
// of two; Error{Shape} if a bucket's bytes are above kMaxSize (core/shape.h).
BucketPlan bucket_plan(std::span<const BucketParameter> parameters,
                       std::span<const std::size_t> order, const BucketOptions& options = {});

// A line per bucket with dtype, device and bytes, then a line per slot:
// "  parameter 3: elements [0, 100), 400 B".
std::string to_string(const BucketPlan& plan);

}  // namespace lockstep::plan
