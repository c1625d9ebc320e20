// `--watch FILE` of a program that trains by itself: the course's and those of the bug lab.
#pragma once

#include <functional>
#include <string>

namespace lockstep::watch {

// Runs the body, then writes the page of a step that it trained (recorder.h). Without a path it
// only runs the body; so do ranks that a launcher started, which are alone in their processes.
// Throws Error{Io} first of all if the file cannot be written, and Error{State} afterwards if
// nothing was trained that can be recorded.
void watch_program(const std::string& path, const std::string& program,
                   const std::function<void()>& body);

}  // namespace lockstep::watch
