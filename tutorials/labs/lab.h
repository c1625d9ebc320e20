// Every lab's source includes this.
#pragma once

#include <stdexcept>

namespace lab {

// Thrown by a blank that is still to be filled in; the text says with what.
class NotDone : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace lab
