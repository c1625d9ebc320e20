#include "engine/nn/nesting.h"

#include "engine/core/error.h"

namespace lockstep::nn {
namespace {

thread_local std::size_t depth = 0;

}  // namespace

NestingScope::NestingScope() {
  require(depth < kMaxNesting, ErrorCode::State, "module",
          "modules are nested more than {} deep; put them one after another in one Sequential",
          kMaxNesting);
  ++depth;
}

NestingScope::~NestingScope() {
  --depth;
}

std::size_t nesting_depth() {
  return depth;
}

}  // namespace lockstep::nn
