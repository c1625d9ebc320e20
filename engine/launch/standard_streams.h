// Standard input, output and error of a program that was started without some of them.
#pragma once

namespace lockstep::launch {

// Occupies descriptors 0, 1 and 2 where they are closed (as after `lockstep ... >&-`): the next
// file, socket or pipe that is opened would take the number, and what is printed would go there.
// Reading and writing still fail with EBADF. Call it first in main.
void occupy_closed_standard_streams();

}  // namespace lockstep::launch
