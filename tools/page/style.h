// The style sheet of the page.
#pragma once

#include <string_view>

namespace lockstep::tools::page {

// Light and dark by prefers-color-scheme; for a phone, a desk and print. The colours of data are
// those of Okabe and Ito (2008), which people with any colour vision tell apart; in the dark some
// are lighter.
extern const std::string_view kStyle;

}  // namespace lockstep::tools::page
