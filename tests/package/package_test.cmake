# Run by CTest, see CMakeLists.txt. Each step stops the test with the output of the step that failed.

include(${CMAKE_CURRENT_LIST_DIR}/run_step.cmake)

string(REPLACE ";" " " flags "${SANITIZER_FLAGS}")
file(REMOVE_RECURSE ${SCRATCH})
run_step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix)
run_step(${CMAKE_COMMAND} -G Ninja -S ${CONSUMER} -B ${SCRATCH}/build
  -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix -DCMAKE_BUILD_TYPE=${CONFIG} "-DCMAKE_CXX_FLAGS=${flags}")
run_step(${CMAKE_COMMAND} --build ${SCRATCH}/build)
run_step(${SCRATCH}/build/parts)
file(REMOVE_RECURSE ${SCRATCH})
