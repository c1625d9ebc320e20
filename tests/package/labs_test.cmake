# Run by CTest, see CMakeLists.txt: makes the labs from an installed package, and grades a solution that needs most of
# it.

include(${CMAKE_CURRENT_LIST_DIR}/run_step.cmake)

file(REMOVE_RECURSE ${SCRATCH})
foreach(component program tutorials development)
  run_step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix --component ${component})
endforeach()
run_step(${SCRATCH}/prefix/share/lockstep/labs/make_labs.sh ${SCRATCH}/labs)
run_step(${SCRATCH}/prefix/bin/lockstep grade ${SCRATCH}/labs/teacher/11_no_sync --hidden ${SCRATCH}/labs/teacher
  --pass 100)
file(REMOVE_RECURSE ${SCRATCH})
