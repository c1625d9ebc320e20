#include "engine/core/dtype.h"

#include <algorithm>
#include <array>

#include "engine/core/error.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 7> kNames{"float64", "float32", "bfloat16", "float16",
                                                 "int64",   "int32",   "uint8"};

}  // namespace

std::string_view to_string(DType dtype) {
  return kNames[static_cast<std::size_t>(dtype)];
}

DType parse_dtype(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  require(found != kNames.end(), ErrorCode::DType, "dtype",
          "unknown dtype '{}'; use float64, float32, bfloat16, float16, int64, int32 or uint8",
          name);
  return static_cast<DType>(found - kNames.begin());
}

}  // namespace lockstep
