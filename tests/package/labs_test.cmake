# Run by CTest, see CMakeLists.txt: makes the labs from an installed package, and grades their solutions.

include(${CMAKE_CURRENT_LIST_DIR}/run_step.cmake)

file(REMOVE_RECURSE ${SCRATCH})
foreach(component program tutorials development)
  run_step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix --component ${component})
endforeach()
run_step(${SCRATCH}/prefix/share/lockstep/labs/make_labs.sh ${SCRATCH}/labs)
foreach(lab 01_linear_backward 05_naive_all_reduce 11_no_sync)
  run_step(${SCRATCH}/prefix/bin/lockstep grade ${SCRATCH}/labs/teacher/${lab} --hidden ${SCRATCH}/labs/teacher
    --pass 100)
endforeach()
file(REMOVE_RECURSE ${SCRATCH})
