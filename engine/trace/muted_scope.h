// Work that no timeline shall show: what checks a run, and is no part of it.
#pragma once

namespace lockstep::trace {

// While one of these lives, the spans and flows of the calling thread are not recorded.
class MutedScope {
 public:
  MutedScope();
  ~MutedScope();
  MutedScope(const MutedScope&) = delete;
  MutedScope& operator=(const MutedScope&) = delete;

 private:
  bool was_muted_;
};

// Whether the calling thread has one.
bool is_muted();

}  // namespace lockstep::trace
