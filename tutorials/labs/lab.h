// What the source of every lab includes.
#pragma once

#include <stdexcept>

namespace lab {

// Thrown where a blank is still to be filled in; the text says with what.
class NotDone : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace lab
