# Run by CTest, see CMakeLists.txt. Each step stops the test with the output of the step that failed.

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "[package] this step failed: ${ARGN}\n${output}")
  endif()
endfunction()

string(REPLACE ";" " " flags "${SANITIZER_FLAGS}")
file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix)
run(${CMAKE_COMMAND} -G Ninja -S ${CONSUMER} -B ${SCRATCH}/build
  -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix -DCMAKE_BUILD_TYPE=${CONFIG} "-DCMAKE_CXX_FLAGS=${flags}")
run(${CMAKE_COMMAND} --build ${SCRATCH}/build)
run(${SCRATCH}/build/parts)
run(${SCRATCH}/build/everything)
file(REMOVE_RECURSE ${SCRATCH})
