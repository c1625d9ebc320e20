// The page's own files, and the lines of the engine that it quotes, embedded by embed.cmake.
#pragma once

#include <string_view>

namespace lockstep::watch {

extern const std::string_view kHtml;
extern const std::string_view kCss;
extern const std::string_view kJs;
extern const std::string_view kQuotes;  // JSON: by moment, {"file", "line", "text"}

}  // namespace lockstep::watch
