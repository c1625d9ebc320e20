// Texts and values inside HTML pages.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lockstep::tools {

// A text inside an element or a quoted attribute: none of it becomes markup.
std::string escape_html(std::string_view text);

// A value inside a script element: no text in it ends the element, or begins another.
std::string script_text(const nlohmann::json& json);

// A page that is filled from its template: each put() replaces the next place of that name.
class PageTemplate {
 public:
  // REQUIRES: the template outlives this.
  explicit PageTemplate(std::string_view html) : rest_(html) {}
  // REQUIRES: the place stands behind those that were filled before.
  void put(std::string_view place, std::string_view text);
  std::string finish() { return page_.append(rest_); }

 private:
  std::string page_;
  std::string_view rest_;
};

}  // namespace lockstep::tools
