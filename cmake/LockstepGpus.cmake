# Chooses the GPU architectures that a build compiles for, without a CUDA compiler.

# lockstep_find_gpus(found): the compute capabilities of this machine's GPUs without the dot, as 75;86;
# "unknown" for a GPU without a description; empty where there is none. Asks nvidia-smi, also
# where WSL2 keeps it, then looks for the driver's files below ROOT (empty: the machine's own).
function(lockstep_find_gpus found)
  set(${found} "" PARENT_SCOPE)
  find_program(LOCKSTEP_NVIDIA_SMI nvidia-smi PATHS /usr/lib/wsl/lib NO_CACHE)
  if(LOCKSTEP_NVIDIA_SMI)
    execute_process(COMMAND ${LOCKSTEP_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE answer ERROR_QUIET TIMEOUT 30)
    # An exit code other than 0 may be a warning, such as that an infoROM is corrupted.
    string(REPLACE "\n" ";" capabilities "${answer}")
    list(FILTER capabilities INCLUDE REGEX "^ *[0-9]+\\.[0-9] *$")
    string(REPLACE " " "" capabilities "${capabilities}")
    if(capabilities)
      string(REPLACE "." "" capabilities "${capabilities}")
      list(REMOVE_DUPLICATES capabilities)
      list(SORT capabilities COMPARE NATURAL)
      set(${found} "${capabilities}" PARENT_SCOPE)
      return()
    endif()
  endif()
  file(GLOB files ${ROOT}/dev/nvidia[0-9]* ${ROOT}/proc/driver/nvidia/gpus/*)
  if(files)
    set(${found} unknown PARENT_SCOPE)
  endif()
endfunction()

# lockstep_choose_architectures(chosen <known> <wanted>): a value for CMAKE_CUDA_ARCHITECTURES. known: what the
# compiler can compile for, as 75;80;86. wanted: what lockstep_find_gpus found, empty, or "release".
# A GPU gets native code, one that is newer than the compiler the PTX of the newest it knows. Without a GPU,
# PTX of the oldest: quick to compile, and each GPU's driver makes its own code of it. A release has native
# code for Turing to Hopper, and PTX for what comes after.
# Empty: the GPUs are older than what the compiler knows.
function(lockstep_choose_architectures chosen known wanted)
  list(SORT known COMPARE NATURAL)
  list(FILTER known EXCLUDE REGEX "^[1-6][0-9]$")  # C++20 and these kernels begin at Volta
  list(GET known 0 oldest)
  list(GET known -1 newest)
  set(architectures "")
  if(wanted STREQUAL "release")
    foreach(architecture 75 80 86 89 90)
      if(architecture IN_LIST known)
        list(APPEND architectures ${architecture}-real)
      endif()
    endforeach()
    list(TRANSFORM architectures REPLACE "-real$" "" AT -1)
  elseif(NOT wanted OR wanted STREQUAL "unknown")
    set(architectures ${oldest}-virtual)
  else()
    foreach(architecture IN LISTS wanted)
      if(architecture IN_LIST known)
        list(APPEND architectures ${architecture}-real)
      elseif(architecture GREATER newest)
        list(APPEND architectures ${newest}-virtual)
      elseif(architecture GREATER oldest)
        list(APPEND architectures ${oldest}-virtual)
      endif()
    endforeach()
    list(REMOVE_DUPLICATES architectures)
  endif()
  set(${chosen} "${architectures}" PARENT_SCOPE)
endfunction()
