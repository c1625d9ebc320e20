// The files that make up the page, as the build embeds them (embed.cmake).
#pragma once

#include <string_view>

namespace lockstep::tools::page {

extern const std::string_view kPageHtml, kPageCss, kPageJs;
extern const std::string_view kChartJs;  // empty if the build found none

}  // namespace lockstep::tools::page
