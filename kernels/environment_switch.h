// A choice that a user makes with a variable of the environment.
#pragma once

namespace lockstep::kernels {

// False for NAME=off; true for NAME=on, and where it is empty or not set. Read anew each time.
// Throws Error{Usage} for another word.
bool is_switched_on(const char* name);

}  // namespace lockstep::kernels
