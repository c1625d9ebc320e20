# Decides whether this build has MPI: sets LOCKSTEP_HAVE_MPI to ON or OFF.
#
# LOCKSTEP_MPI=OFF never looks; AUTO takes MPI where CMake finds it; ON stops without it. AUTO means OFF in
# builds with a sanitizer, which reports what MPI libraries do inside.

set(LOCKSTEP_HAVE_MPI OFF)
if(NOT LOCKSTEP_MPI MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "LOCKSTEP_MPI is '${LOCKSTEP_MPI}'; use AUTO, ON or OFF")
endif()
if(LOCKSTEP_MPI STREQUAL "OFF" OR (LOCKSTEP_MPI STREQUAL "AUTO" AND LOCKSTEP_SANITIZE))
  return()
endif()
# If MPI's programs are installed without its headers, its compiler wrapper names a missing folder, and FindMPI stops
# the configuration.
set(MPI_CXX_SKIP_MPICXX ON)  # the C interface, in a C++ program
find_program(LOCKSTEP_MPI_WRAPPER NAMES mpicxx mpic++ HINTS ENV MPI_HOME PATH_SUFFIXES bin)
mark_as_advanced(LOCKSTEP_MPI_WRAPPER)
set(without_header 0)
if(LOCKSTEP_MPI_WRAPPER AND NOT MPI_CXX_COMPILER)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/mpi_header.cpp CONTENT "#include <mpi.h>\n")
  execute_process(COMMAND ${LOCKSTEP_MPI_WRAPPER} -E ${PROJECT_BINARY_DIR}/generated/mpi_header.cpp
    RESULT_VARIABLE without_header OUTPUT_QUIET ERROR_QUIET)
endif()
if(without_header EQUAL 0)
  find_package(MPI COMPONENTS CXX QUIET)
endif()
if(MPI_CXX_FOUND)
  set(LOCKSTEP_HAVE_MPI ON)
  message(STATUS "MPI: ${MPI_CXX_COMPILER}, standard ${MPI_CXX_VERSION}")
elseif(LOCKSTEP_MPI STREQUAL "ON")
  message(FATAL_ERROR "LOCKSTEP_MPI=ON, but CMake finds no MPI with its headers. Install its development package (Debian and "
    "Ubuntu: libopenmpi-dev and openmpi-bin), or set MPI_HOME.")
else()
  message(STATUS "MPI: off, none was found with its headers")
endif()
