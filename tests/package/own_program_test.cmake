# Run by CTest, see CMakeLists.txt: does what docs/library.md tells its reader to do, with the files
# and the commands printed there. Only the building of Lockstep itself is taken from this build folder.

include(${CMAKE_CURRENT_LIST_DIR}/run_step.cmake)

# Sets ${result} to the text of a fenced block of ${section}: the first of a language that contains a word.
function(find_block language word result)
  if(NOT section MATCHES "\n```${language}\n([^`]*${word}[^`]*)```")
    message(FATAL_ERROR "[package] docs/library.md has no block of '${language}' with '${word}'")
  endif()
  set(${result} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

file(READ ${PAGE} section)
find_block("cpp" "int main" program)
find_block("cmake" "find_package" project)
find_block("" "--install" install_commands)
find_block("" "cmake -G" build_commands)

file(REMOVE_RECURSE ${SCRATCH})
file(WRITE ${SCRATCH}/own/digits.cpp "${program}")
file(WRITE ${SCRATCH}/own/CMakeLists.txt "${project}")
string(REPLACE ";" " " flags "${SANITIZER_FLAGS}")
set(ENV{HOME} ${SCRATCH})
set(ENV{CXX} ${CXX})
set(ENV{CXXFLAGS} "${flags}")

string(REGEX MATCH "cmake --install[^\n]*" install_command "${install_commands}")
string(REPLACE " build/cpu " " ${BUILD} " install_command "${install_command}")
run_step(sh -ec "${install_command}")
string(REGEX REPLACE "\nbuild/digits.*" "" build_commands "${build_commands}")
run_step(sh -ec "cd ${SCRATCH}/own\n${build_commands}")
run_step(${SCRATCH}/own/build/digits)

# It learns, and says so as the page shows it.
foreach(line "epoch  1  loss [0-9.]+\n" "epoch 10  loss 0[.]0[0-9]+\n" "[89][0-9][.][0-9] % of 297 unseen digits recognised\n"
    "all 4 ranks have the same weights: yes\n")
  if(NOT step_output MATCHES "${line}")
    message(FATAL_ERROR "[package] the program of docs/library.md does not print '${line}' but:\n${step_output}")
  endif()
endforeach()

# `lockstep doctor` can examine it: with LOCKSTEP_AUDIT set it writes down its steps.
file(MAKE_DIRECTORY ${SCRATCH}/record)
set(ENV{LOCKSTEP_AUDIT} ${SCRATCH}/record)
run_step(${SCRATCH}/own/build/digits)
file(GLOB records ${SCRATCH}/record/*.jsonl)
file(STRINGS "${records}" steps REGEX "\"event\":\"step\"")
if(NOT steps)
  message(FATAL_ERROR "[package] the program of docs/library.md recorded no step in '${records}'")
endif()
unset(ENV{LOCKSTEP_AUDIT})

# The page's own mode trains as well as the engine's, by the same loop.
find_block("cpp" "class LocalSgd" modes)
file(WRITE ${SCRATCH}/own/digits.cpp "${modes}")
run_step(sh -ec "cd ${SCRATCH}/own && cmake --build build")
run_step(${SCRATCH}/own/build/digits)
foreach(mode "local SGD" "ddp" "zero3")
  if(NOT step_output MATCHES "${mode}: [89][0-9][.][0-9] % of 297 unseen digits recognised\n")
    message(FATAL_ERROR "[package] the modes of docs/library.md do not learn but:\n${step_output}")
  endif()
endforeach()
file(REMOVE_RECURSE ${SCRATCH})
