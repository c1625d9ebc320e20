#include "tools/page/loss_log.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/text.h"

namespace lockstep::tools::page {
namespace {

constexpr std::size_t kMostPoints = 240;

std::vector<Point> thinned(const std::vector<Point>& all) {
  const std::size_t group = (all.size() + kMostPoints - 1) / kMostPoints;
  if (group <= 1) return all;
  std::vector<Point> means;
  for (std::size_t begin = 0; begin < all.size(); begin += group) {
    const std::size_t end = std::min(begin + group, all.size());
    Point mean;
    for (std::size_t i = begin; i < end; ++i) {
      mean.x += all[i].x / static_cast<double>(end - begin);
      mean.y += all[i].y / static_cast<double>(end - begin);
    }
    means.push_back(mean);
  }
  return means;
}

}  // namespace

std::vector<Point> read_losses(const std::filesystem::path& path, std::string_view operation) {
  std::istringstream lines(read_text_file(path, operation));
  std::vector<Point> all;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    const bool is_step = json.is_object() && json.contains("step") && json["step"].is_number() &&
                         json.contains("loss") && json["loss"].is_number();
    require(is_step, ErrorCode::Io, operation,
            "'{}', line {}: expected a step with its loss, as `lockstep train --log` writes it, "
            "found {}",
            shown(path.string()), all.size() + 1, shown(line));
    all.push_back({json["step"], json["loss"]});
  }
  require(!all.empty(), ErrorCode::Io, operation, "'{}' holds no step", shown(path.string()));
  return thinned(all);
}

}  // namespace lockstep::tools::page
