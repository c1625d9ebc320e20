# Shows that check_errno.cmake catches what it should, and a folder without sources:
#   cmake -DCHECK=<check_errno.cmake> -DSCRATCH=<folder> -P check_errno_test.cmake

# expect(<verdict> <code>): a tree with this code is accepted or refused.
function(expect verdict code)
  file(REMOVE_RECURSE ${SCRATCH})
  if(code)
    file(WRITE ${SCRATCH}/engine/core/file.cpp "${code}\n")
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${SCRATCH} -P ${CHECK}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(verdict STREQUAL "accepted" AND NOT result EQUAL 0)
    message(SEND_ERROR "'${code}' should be accepted, but: ${output}")
  elseif(verdict STREQUAL "refused" AND result EQUAL 0)
    message(SEND_ERROR "'${code}' should be refused")
  endif()
endfunction()

expect(accepted "const int result = close(fd);\nrequire(result == 0, ErrorCode::Io, \"close\", \"{}\", errno);")
expect(accepted "require(file.is_open(), ErrorCode::Io, \"open\", \"{}\", strerror(errno));")
expect(refused "require(close(fd) == 0, ErrorCode::Io, \"close\", \"{}\", strerror(errno));")
expect(refused "")

file(REMOVE_RECURSE ${SCRATCH})
