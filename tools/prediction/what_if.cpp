#include "tools/prediction/what_if.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/core/error.h"
#include "engine/core/text.h"

namespace lockstep::tools {
namespace {

constexpr double kMaxValue = 1e9;

}  // namespace

std::vector<WhatIf> parse_what_if(const std::string& word) {
  const std::size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const bool is_known = name == "bucket_mib" || name == "bandwidth" || name == "batch";
  require(is_known && equals != std::string::npos, ErrorCode::Usage, "--what-if",
          "expected bucket_mib=1,25,100 or bandwidth=2x or batch=64,256, found '{}'", shown(word));
  std::vector<WhatIf> changes;
  for (std::size_t begin = equals + 1; begin <= word.size();) {
    const std::size_t end = std::min(word.find(',', begin), word.size());
    std::string text = word.substr(begin, end - begin);
    WhatIf change{name + "=" + text};
    if (name == "bandwidth" && text.ends_with("x")) text.pop_back();
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_good = error == std::errc() && stop == text.data() + text.size() && value > 0 &&
                         value <= kMaxValue && (name != "batch" || value == std::floor(value));
    require(is_good, ErrorCode::Usage, "--what-if", "'{}' is no value of {}", shown(text), name);
    if (name == "bucket_mib") change.bucket_mib = value;
    if (name == "bandwidth") change.bandwidth = value;
    if (name == "batch") change.batch = static_cast<std::size_t>(value);
    changes.push_back(change);
    begin = end + 1;
  }
  return changes;
}

}  // namespace lockstep::tools
