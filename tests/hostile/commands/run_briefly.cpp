#include "tests/hostile/commands/run_briefly.h"

#include "tests/support/temp_folder.h"

namespace lockstep::testing {

Outcome run_briefly(const Arguments& arguments, const std::filesystem::path& folder) {
  Arguments words = {"-s", "KILL", "60", LOCKSTEP_UNDER_ATTACK};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run_lockstep(words, folder);
}

Outcome run_briefly(const Arguments& arguments) {
  const TempFolder folder;
  return run_briefly(arguments, folder.path());
}

}  // namespace lockstep::testing
