// LOCKSTEP_INDEPENDENT stands before a loop none of whose iterations reads what another one writes:
// the compiler may then vectorise it without asking whether its pointers overlap. They may be
// equal, as where y is x.
#pragma once

#ifdef __clang__
#define LOCKSTEP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOCKSTEP_INDEPENDENT _Pragma("GCC ivdep")
#endif
