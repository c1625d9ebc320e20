// Lab 08: which gradients are all-reduced together. README.md says what is to be done.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lab {

// Which parameters share a bucket, bucket by bucket in the order of their launch; parameters in the
// order in which they entered.
// num_bytes[p]: of parameter p, in the order of registration. Gradients become ready in the reverse
// order, so the last parameter enters first. A bucket closes as soon as it holds at least its limit
// of bytes: the first bucket's is byte_limits[0], the second one's byte_limits[1], and so on; the
// last limit stays. What is open at the end is a bucket too.
// REQUIRES: byte_limits is not empty.
std::vector<std::vector<std::size_t>> bucket_plan(std::span<const std::size_t> num_bytes,
                                                  std::span<const std::size_t> byte_limits);

}  // namespace lab
