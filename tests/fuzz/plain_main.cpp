// A fuzzer for builds without libFuzzer: PROGRAM CORPUS reads all files of the folder, then damages
// them for LOCKSTEP_HOSTILE_SECONDS seconds (2).
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "tests/fuzz/damage.h"
#include "tests/hostile/rounds.h"
#include "tests/support/temp_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t num_bytes);

namespace {

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> corpus;
  for (const auto& file : std::filesystem::directory_iterator(argc == 2 ? argv[1] : ".")) {
    corpus.push_back(lockstep::testing::read_text(file.path()));
    run(corpus.back());
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "no corpus\n");
    return 1;
  }
  ::setenv("LOCKSTEP_HOSTILE_SECONDS", "2", 0);
  lockstep::testing::Rounds round(0);
  for (; round.go_on(); round.next()) {
    run(lockstep::testing::damaged(corpus[round.seed() % corpus.size()], round.seed()));
  }
  std::printf("%zu files of the corpus, %llu damaged ones\n", corpus.size(),
              static_cast<unsigned long long>(round.seed()));
  return 0;
}
