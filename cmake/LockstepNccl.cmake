# Decides whether this build can use NCCL: sets LOCKSTEP_HAVE_NCCL to ON or OFF, and LOCKSTEP_NCCL_INCLUDE.
#
# Only the header is needed: the library is loaded when a program asks for it. LOCKSTEP_NCCL=OFF never looks;
# AUTO takes NCCL where its header is found in a build with CUDA; ON stops without it. NCCL_ROOT (a CMake or
# environment variable) names where to look first, such as the folder nvidia/nccl of pip's packages.

set(LOCKSTEP_HAVE_NCCL OFF)
if(NOT LOCKSTEP_NCCL MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "LOCKSTEP_NCCL is '${LOCKSTEP_NCCL}'; use AUTO, ON or OFF")
endif()
if(LOCKSTEP_NCCL STREQUAL "OFF")
  return()
endif()

set(nccl_problem "")
if(NOT LOCKSTEP_HAVE_CUDA)
  set(nccl_problem "it needs CUDA, which this build does not have")
else()
  find_path(LOCKSTEP_NCCL_INCLUDE nccl.h HINTS ${NCCL_ROOT} ENV NCCL_ROOT ENV CUDA_HOME
    PATHS /usr/local/cuda PATH_SUFFIXES include)
  mark_as_advanced(LOCKSTEP_NCCL_INCLUDE)
  if(NOT LOCKSTEP_NCCL_INCLUDE)
    set(nccl_problem "nccl.h was not found (install libnccl-dev of NVIDIA's repository, or set NCCL_ROOT)")
  else()
    file(STRINGS ${LOCKSTEP_NCCL_INCLUDE}/nccl.h numbers REGEX "^#define NCCL_(MAJOR|MINOR) +[0-9]+")
    string(REGEX REPLACE "[^0-9;]" "" numbers "${numbers}")
    list(JOIN numbers "." nccl_version)
    if(nccl_version VERSION_LESS 2.18)
      set(nccl_problem "${LOCKSTEP_NCCL_INCLUDE}/nccl.h is of version ${nccl_version}, and 2.18 or newer is needed")
    endif()
  endif()
endif()
if(NOT nccl_problem)
  set(LOCKSTEP_HAVE_NCCL ON)
  message(STATUS "NCCL: header ${nccl_version} in ${LOCKSTEP_NCCL_INCLUDE}")
elseif(LOCKSTEP_NCCL STREQUAL "ON")
  message(FATAL_ERROR "LOCKSTEP_NCCL=ON, but ${nccl_problem}")
else()
  message(STATUS "NCCL: off, ${nccl_problem}")
endif()
