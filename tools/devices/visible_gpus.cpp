#include "tools/devices/visible_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace lockstep::tools {
namespace {

constexpr const char* kRest = "CUDA ignores it and what follows";

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> entries;
  while (true) {
    const std::size_t comma = text.find(',');
    entries.push_back(trim(text.substr(0, comma)));
    if (comma == std::string_view::npos) return entries;
    text.remove_prefix(comma + 1);
  }
}

// The GPU that an entry names; otherwise why it names none.
struct Named {
  std::optional<std::size_t> gpu;
  std::string problem;
};

Named find_by_uuid(std::string_view entry, const std::vector<GpuUuids>& uuids) {
  Named named;
  for (std::size_t i = 0; i < uuids.size(); ++i) {
    if (!uuids[i].gpu.starts_with(entry)) continue;
    if (named.gpu) return {std::nullopt, fmt::format("'{}' fits several GPUs: {}", entry, kRest)};
    named.gpu = i;
  }
  if (!named.gpu) named.problem = fmt::format("no GPU has the UUID '{}': {}", entry, kRest);
  return named;
}

Named find_by_slice(std::string_view entry, const std::vector<GpuUuids>& uuids) {
  for (std::size_t i = 0; i < uuids.size(); ++i) {
    const bool is_its = entry.starts_with("MIG-" + uuids[i].gpu + "/") ||
                        std::ranges::any_of(uuids[i].slices, [&](const std::string& slice) {
                          return slice.starts_with(entry);
                        });
    if (is_its) {
      return {i, fmt::format("'{}' is a slice of GPU {}: a program sees only this slice, and the "
                             "table shows the whole GPU",
                             entry, i)};
    }
  }
  return {std::nullopt, fmt::format("no GPU has the MIG slice '{}': {}", entry, kRest)};
}

Named find(std::string_view entry, const std::vector<GpuUuids>& uuids) {
  if (entry.starts_with("GPU-")) return find_by_uuid(entry, uuids);
  if (entry.starts_with("MIG-")) return find_by_slice(entry, uuids);
  // CUDA reads digits as far as they go, so that "1x" is 1.
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  if (error != std::errc{}) {
    return {std::nullopt, fmt::format("'{}' is no GPU's number: {}", entry, kRest)};
  }
  if (number >= uuids.size()) {
    return {std::nullopt, fmt::format("there is no GPU {}: {}", entry, kRest)};
  }
  return {number, {}};
}

}  // namespace

VisibleGpus read_visible_devices(const std::optional<std::string>& text,
                                 const std::vector<GpuUuids>& uuids) {
  VisibleGpus visible;
  if (!text) {
    for (std::size_t i = 0; i < uuids.size(); ++i) visible.gpus.push_back(i);
    return visible;
  }
  if (trim(*text).empty()) return visible;
  for (const std::string_view entry : split(*text)) {
    const Named named = find(entry, uuids);
    if (!named.problem.empty()) {
      visible.problems.push_back(named.problem);
      if (named.gpu && visible.gpus.empty()) visible.gpus.push_back(*named.gpu);
      return visible;
    }
    if (std::find(visible.gpus.begin(), visible.gpus.end(), *named.gpu) != visible.gpus.end()) {
      return {{}, {fmt::format("GPU {} stands twice: CUDA then shows none", *named.gpu)}};
    }
    visible.gpus.push_back(*named.gpu);
  }
  return visible;
}

}  // namespace lockstep::tools
