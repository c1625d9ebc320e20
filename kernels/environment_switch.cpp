#include "kernels/environment_switch.h"

#include <cstdlib>
#include <string_view>

#include "engine/core/error.h"

namespace lockstep::kernels {

bool is_switched_on(const char* name) {
  const char* text = std::getenv(name);
  const std::string_view word = text ? text : "";
  require(word.empty() || word == "on" || word == "off", ErrorCode::Usage, name,
          "is '{}'; use on or off", word);
  return word != "off";
}

}  // namespace lockstep::kernels
