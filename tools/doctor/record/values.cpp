#include "tools/doctor/record/values.h"

#include <algorithm>
#include <cstring>

namespace lockstep::record {
namespace {

constexpr std::size_t kWholeBytes = std::size_t{64} << 10;
constexpr std::size_t kNumWords = 8192;
constexpr std::size_t kEndBytes = 4096;

// splitmix64 (public domain, Vigna).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

std::uint64_t hash_bytes(std::uint64_t hash, const std::byte* bytes, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i, std::min<std::size_t>(8, count - i));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

// JSON readers keep numbers below 2^53 exactly.
std::uint64_t finish(std::uint64_t hash) {
  return mix(hash) >> 12;
}

// The i-th of count sampled places among size elements: one in each of count equal parts.
std::size_t place_of(std::size_t i, std::size_t count, std::size_t size) {
  const std::size_t begin = i * size / count;
  const std::size_t end = (i + 1) * size / count;
  return begin + mix(i) % (end - begin);
}

template <typename T>
Sketch sketch_elements(const T* elements, std::size_t size) {
  Sketch sketch{};
  const std::size_t count = std::min(size, kNumSampled);
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(elements[place_of(i, count, size)]);
    std::uint64_t signs = mix(i + 0x5eed);
    for (double& sum : sketch) {
      sum += (signs & 1) != 0 ? value : -value;
      signs >>= 1;
    }
  }
  return sketch;
}

}  // namespace

Sketch sketch_of(ConstTensorView values) {
  if (values.data == nullptr || values.num_elements == 0) return {};
  if (values.dtype == DType::float32) {
    return sketch_elements(static_cast<const float*>(values.data), values.num_elements);
  }
  if (values.dtype == DType::float64) {
    return sketch_elements(static_cast<const double*>(values.data), values.num_elements);
  }
  return {};
}

bool is_zero(const Sketch& sketch) {
  return std::ranges::all_of(sketch, [](double sum) { return sum == 0; });
}

std::uint64_t hash_of(ConstTensorView values) {
  if (values.data == nullptr) return 0;
  const auto* bytes = static_cast<const std::byte*>(values.data);
  const std::size_t count = values.num_bytes();
  if (count <= kWholeBytes) return finish(hash_bytes(count, bytes, count));
  std::uint64_t hash = count;
  const std::size_t stride = count / kNumWords / 8 * 8;
  for (std::size_t i = 0; i < kNumWords; ++i) hash = hash_bytes(hash, bytes + i * stride, 8);
  return finish(hash_bytes(hash, bytes + count - kEndBytes, kEndBytes));
}

std::vector<std::uint64_t> hash_rows(ConstTensorView values, std::size_t num_rows) {
  std::vector<std::uint64_t> hashes;
  if (values.data == nullptr || num_rows == 0) return hashes;
  const auto* bytes = static_cast<const std::byte*>(values.data);
  const std::size_t row_bytes = values.num_bytes() / num_rows;
  for (std::size_t row = 0; row < num_rows; ++row) {
    hashes.push_back(finish(hash_bytes(row_bytes, bytes + row * row_bytes, row_bytes)));
  }
  return hashes;
}

}  // namespace lockstep::record
