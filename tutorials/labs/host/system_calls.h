// What a submission may ask of the kernel: memory, threads, clocks, waiting, and reading files.
#pragma once

namespace lab {

// From now on every other system call of this process fails with EPERM: it starts no process, opens
// no socket, writes, renames or removes no file, and sends no other process a signal.
// Needs no_new_privs. Throws Error{Io} where the kernel has no such filters (seccomp).
void restrict_system_calls();

}  // namespace lab
