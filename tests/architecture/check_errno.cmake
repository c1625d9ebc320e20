# cmake -DROOT=FOLDER -P check_errno.cmake: fails if one expression makes a call and reports its errno.
# The arguments of a function are evaluated in any order, so `require(open(...) == 0, ..., strerror(errno))` says
# "Success". Make the call first, and keep its result in a variable.
file(GLOB_RECURSE sources ${ROOT}/engine/*.cpp ${ROOT}/tools/*.cpp ${ROOT}/kernels/*.cpp ${ROOT}/simulate/*.cpp ${ROOT}/datasets/*.cpp)
if(NOT sources)
  message(FATAL_ERROR "[architecture] expected sources under ROOT=${ROOT}, found none")
endif()
set(wrong "")
foreach(source IN LISTS sources)
  file(READ ${source} text)
  string(REPLACE ";" "@" text "${text}")  # CMake's lists are cut there
  string(REGEX REPLACE "[][]" " " text "${text}")
  string(REGEX MATCHALL "require\\([^@]*errno[^@]*@" statements "${text}")
  foreach(statement IN LISTS statements)
    string(REGEX REPLACE "is_open\\(\\)" "" statement "${statement}")
    if(statement MATCHES "^require\\([^,]*[a-z0-9_]\\(")
      string(REGEX MATCH "^[^@\n]*" line "${statement}")
      string(APPEND wrong "\n  ${source}: ${line}")
    endif()
  endforeach()
endforeach()
if(wrong)
  message(FATAL_ERROR "errno may be read before the call that sets it:${wrong}")
endif()
