#include "engine/launch/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <initializer_list>

namespace lockstep::launch {

// In their order, since open() takes the lowest number that is free. Each the wrong way round, so
// that nobody takes it for a stream that works.
void occupy_closed_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    (void)!::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace lockstep::launch
