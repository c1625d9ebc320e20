// Which files a process can reach, decided by itself, without any privilege: Linux's Landlock.
#pragma once

#include <string>
#include <vector>

namespace lab {

// From now on, and for all that it starts, this process reads and executes files below `readable`
// only, and writes below `writable` only. Paths that do not exist are left out. TCP is refused
// where the kernel can. Needs no_new_privs.
// Returns false where the kernel has no Landlock. Throws Error{Io} where it has, and refuses.
bool restrict_files(const std::vector<std::string>& readable,
                    const std::vector<std::string>& writable);

}  // namespace lab
