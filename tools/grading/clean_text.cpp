#include "tools/grading/clean_text.h"

#include <nlohmann/json.hpp>

namespace lockstep::tools::grading {

std::string clean_text(std::string_view text) {
  using nlohmann::json;
  const std::string quoted = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  return json::parse(quoted).get<std::string>();
}

std::string clean_line(std::string_view text, std::size_t most_bytes) {
  std::string line(text.substr(0, most_bytes));
  if (text.size() > most_bytes) line += "...";
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  }
  return clean_text(line);
}

}  // namespace lockstep::tools::grading
