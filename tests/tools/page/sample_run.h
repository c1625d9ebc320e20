// A run file made by hand: figures of which a test knows what must come of them.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::testing {

// Single, ddp x1 and ddp x2 with batch 64 on four cores, one thread each:
//   single: forward 3 ms, backward 6 ms, optimizer 1 ms: a step of 10 ms
//   ddp x2: forward 1.5 ms, backward 3 ms, optimizer 1 ms, exposed communication 0.5 ms: 6 ms;
//   another 0.2 ms of communication is hidden
nlohmann::ordered_json sample_run();

// A row like those of sample_run(), without what compares it with others.
nlohmann::ordered_json sample_row(const std::string& mode, int devices, double step_seconds);

// A timeline of two ranks and two steps, of which step 1 is the shorter.
std::string sample_trace();

// The data that the page's script draws.
nlohmann::ordered_json json_of_page(const std::string& page);

void write_json_file(const std::filesystem::path& path, const nlohmann::ordered_json& json);

}  // namespace lockstep::testing
