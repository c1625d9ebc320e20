#include "tools/text/html.h"

#include <map>

namespace lockstep::tools {

std::string escape_html(std::string_view text) {
  static const std::map<char, std::string_view> kEscaped{
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  std::string html;
  for (const char c : text) {
    const auto found = kEscaped.find(c);
    html += found == kEscaped.end() ? std::string_view(&c, 1) : found->second;
  }
  return html;
}

std::string script_text(const nlohmann::json& json) {
  std::string text;
  for (const char c : json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

void PageTemplate::put(std::string_view place, std::string_view text) {
  const std::size_t at = rest_.find(place);
  page_.append(rest_.substr(0, at)).append(text);
  rest_.remove_prefix(at + place.size());
}

}  // namespace lockstep::tools
