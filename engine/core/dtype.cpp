#include "engine/core/dtype.h"

#include <array>

#include "engine/core/error.h"

namespace lockstep {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  std::size_t num_bytes;
};

constexpr std::array<Entry, 7> kEntries{{{DType::float64, "float64", 8},
                                         {DType::float32, "float32", 4},
                                         {DType::bfloat16, "bfloat16", 2},
                                         {DType::float16, "float16", 2},
                                         {DType::int64, "int64", 8},
                                         {DType::int32, "int32", 4},
                                         {DType::uint8, "uint8", 1}}};

const Entry& entry(DType dtype) {
  return kEntries[static_cast<std::size_t>(dtype)];
}

}  // namespace

std::size_t size_of(DType dtype) {
  return entry(dtype).num_bytes;
}

std::string_view to_string(DType dtype) {
  return entry(dtype).name;
}

DType parse_dtype(std::string_view name) {
  for (const Entry& candidate : kEntries) {
    if (candidate.name == name) return candidate.dtype;
  }
  fail(ErrorCode::DType, "dtype",
       "unknown dtype '{}'; use float64, float32, bfloat16, float16, int64, int32 or uint8", name);
}

bool is_floating_point(DType dtype) {
  return dtype == DType::float64 || dtype == DType::float32 || dtype == DType::bfloat16 ||
         dtype == DType::float16;
}

}  // namespace lockstep
