// The player: one HTML page that needs no other, in which one steps through a recorded step. It is
// page.html with page.css, page.js, and one recording or two as JSON; the sentences stand in it as
// lists, which a browser without JavaScript shows.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/watch/moments.h"

namespace lockstep::watch {

struct PageRecording {
  std::string title;  // "ddp on 4 devices"
  std::string about;  // what was trained: "mlp:8-6-4, 64 rows a step, the third step"
  StepRecording recording;
  // The rows were cut by the engine's strategies, not by a program's own lines.
  enum class Rows { of_engine, of_program } rows = Rows::of_engine;
};

// The recording as the script reads it: ranks, collectives, moments, lanes. It is internal to the
// page of the same program.
nlohmann::ordered_json page_json(const PageRecording& recording, const Story& story);

// REQUIRES: one recording, or two that are played side by side.
std::string make_page(const std::vector<PageRecording>& recordings);

}  // namespace lockstep::watch
