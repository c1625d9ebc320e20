// Where the values of a JSON text stand, which the parser does not say.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// A place is written as "rows[3].kind", and the whole text as ""; names in it hold none of ".[]".
// The line, from 1, on which its value begins, or where there is none, the nearest one around it.
// Of members with one name the last counts. REQUIRES: the text is JSON.
std::size_t line_of_json(std::string_view text, std::string_view place);

// The names in an object, in the text's order and each once. REQUIRES: the text is JSON, and the
// place holds an object.
std::vector<std::string> names_in_json(std::string_view text, std::string_view place);

}  // namespace lockstep
