#include "tools/report/file_head.h"

#include <fmt/chrono.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "tools/report/host_info.h"

namespace lockstep::tools {

nlohmann::ordered_json file_head(std::string_view schema, const std::vector<std::string>& command) {
  return {{"schema", schema},
          {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
          {"command", command},
          {"host", host_info()}};
}

}  // namespace lockstep::tools
