# Run by CTest, see CMakeLists.txt: holds the lab day of docs/teaching.md from the archive. Packs this build, unpacks
# the .tar.gz, puts its bin/ into PATH and gives each command of the day, as a student would.

include(${CMAKE_CURRENT_LIST_DIR}/run_step.cmake)

file(REMOVE_RECURSE ${SCRATCH})
run_step(cpack --config ${BUILD}/CPackConfig.cmake -G TGZ -B ${SCRATCH}/packages)
file(GLOB package ${SCRATCH}/packages/lockstep-*.tar.gz)
file(ARCHIVE_EXTRACT INPUT ${package} DESTINATION ${SCRATCH}/unpacked)
file(GLOB root ${SCRATCH}/unpacked/lockstep-*)
file(MAKE_DIRECTORY ${SCRATCH}/home)
set(ENV{HOME} ${SCRATCH}/home)
set(ENV{XDG_STATE_HOME} ${SCRATCH}/home)
set(ENV{PATH} ${root}/bin:$ENV{PATH})
set(ENV{CXX} ${CXX})

# shell(COMMAND): a line that is typed in the student's home.
macro(shell command)
  run_step(sh -ec "cd ${SCRATCH}/home && ${command}")
endmacro()

shell("lockstep env")
shell("lockstep learn")
foreach(number 00 01 04 07 08 09 12)
  shell("lockstep learn ${number} -- --fast")
  # The command that a program suggests next works as it is printed.
  if(NOT step_output MATCHES "Now try:\n  (lockstep learn ${number} -- [^\n]*)")
    message(FATAL_ERROR "[package] lockstep learn ${number} prints no command to try:\n${step_output}")
  endif()
  shell("${CMAKE_MATCH_1} --fast")
endforeach()
shell("lockstep learn")
if(NOT step_output MATCHES "next: 02_check_gradients")
  message(FATAL_ERROR "[package] seven programs have passed, so 02 is next, but:\n${step_output}")
endif()

# Lab 05: the exercise as handed out is not done. The teacher's sources have the solutions; what they grade runs
# against the installed engine.
shell("${root}/share/lockstep/labs/make_labs.sh labs")
shell("lockstep grade labs/05_naive_all_reduce --pass 1 && exit 1 || [ $? -eq 1 ]")
shell("${root}/share/lockstep/labs/make_labs.sh more --teacher teacher && exit 1 || [ $? -eq 1 ]")
shell("[ ! -e more ] && [ ! -e teacher ]")
shell("${CMAKE_CURRENT_LIST_DIR}/../../scripts/make_labs.sh more --teacher teacher")
shell("diff -r labs more")
shell("lockstep grade teacher/05_naive_all_reduce --hidden teacher --pass 100")
shell("lockstep grade teacher/11_no_sync --hidden teacher --pass 100")  # which needs most of the engine

# The bug lab.
shell("bug_03")
shell("lockstep doctor -- bug_03 || [ $? -eq 1 ]")
if(NOT step_output MATCHES "equal-rows")
  message(FATAL_ERROR "[package] the doctor does not name the mistake of bug_03:\n${step_output}")
endif()
file(REMOVE_RECURSE ${SCRATCH})
