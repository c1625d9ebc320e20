# Stops where the system or the compiler cannot build Lockstep, and says what can.

if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  message(FATAL_ERROR "Lockstep runs on Linux (on Windows: in WSL2), and this is ${CMAKE_SYSTEM_NAME}")
endif()
set(oldest_GNU 12)
set(oldest_Clang 16)
if(NOT DEFINED oldest_${CMAKE_CXX_COMPILER_ID})
  message(WARNING "Lockstep is built with GCC and clang, and ${CMAKE_CXX_COMPILER} is neither "
    "(CMake calls it ${CMAKE_CXX_COMPILER_ID}): it must know C++20")
elseif(CMAKE_CXX_COMPILER_VERSION VERSION_LESS oldest_${CMAKE_CXX_COMPILER_ID})
  message(FATAL_ERROR "${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, and Lockstep "
    "needs GCC 12 or clang 16, or newer. Install one and name it: CXX=clang++-16 or CXX=g++-12 in the environment, "
    "with a fresh build folder")
endif()
