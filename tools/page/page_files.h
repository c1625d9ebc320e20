// The files that the page is made of, as the build embeds them (embed.cmake).
#pragma once

#include <string_view>

namespace lockstep::tools::page {

extern const std::string_view kPageHtml, kPageCss, kPageJs;
extern const std::string_view kChartJs;  // empty where the build found none

}  // namespace lockstep::tools::page
