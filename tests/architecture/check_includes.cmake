# Checks the direction of every #include in the tree:
#   cmake -DROOT=<project> -P check_includes.cmake
# A file may include its own folder and folders of lower layers. Each breach is one line "file:line: why".

# The layer table, lowest layer first; the folders (or the one file) of an entry don't include each other.
set(layers
  "engine/core"
  "engine/trace"
  "engine/plan"
  "engine/predict engine/runtime"
  "kernels"
  "engine/tensor"
  "engine/autograd engine/comm engine/data engine/checkpoint"
  "engine/nn engine/optim engine/launch datasets"
  "engine/parallel"
  "lockstep.h"
  "tools tutorials")

# Where the headers of a device or a library may appear, as regular expressions over path and header.
# tests/bench is a program of its own: the hand-written floor that the engine's speed is compared with.
set(cuda_places "^((tests/)?(kernels/cuda/|engine/runtime/cuda/|engine/comm/nccl/|engine/comm/transport/cuda_)|tests/emulated_gpu/|tests/bench/)")
set(cuda_headers "^(cuda|cublas|cudnn|curand|cusparse|cusolver|nccl|nvtx|nvml|cooperative_groups|cub/|thrust/|mma\\.h)")
set(eigen_places "^(kernels/cpu/|tests/bench/)")
set(eigen_headers "^(Eigen|unsupported/Eigen|eigen3)/")
set(no_cuda_conditions "^(engine/tensor|engine/autograd|engine/nn|tutorials)/")

# Sets ${folder} to the folder of the table that holds path, or to "", and ${layer} to its layer.
function(find_layer path folder layer)
  set(${folder} "" PARENT_SCOPE)
  set(index 0)
  foreach(entry IN LISTS layers)
    string(REPLACE " " ";" candidates "${entry}")
    foreach(candidate IN LISTS candidates)
      string(FIND "${path}/" "${candidate}/" position)
      if(position EQUAL 0)
        set(${folder} ${candidate} PARENT_SCOPE)
        set(${layer} ${index} PARENT_SCOPE)
        return()
      endif()
    endforeach()
    math(EXPR index "${index} + 1")
  endforeach()
endfunction()

# Sets ${problem} to what is wrong with path including header, or to "".
function(check_include path header problem)
  set(${problem} "" PARENT_SCOPE)
  if(header MATCHES "${cuda_headers}" AND NOT path MATCHES "${cuda_places}")
    set(${problem} "CUDA header <${header}> outside the CUDA folders" PARENT_SCOPE)
  elseif(header MATCHES "${eigen_headers}" AND NOT path MATCHES "${eigen_places}")
    set(${problem} "Eigen header <${header}> outside kernels/cpu" PARENT_SCOPE)
  elseif(header MATCHES "^((engine|kernels|datasets|tools|tutorials|tests)/|lockstep[.]h$)")
    find_layer("${path}" own_folder own_layer)
    find_layer("${header}" its_folder its_layer)
    if(NOT own_folder)
      return()  # tests may include what they test, tools too
    endif()
    string(FIND "${header}" "${own_folder}/" position)
    if(position EQUAL 0)
      return()
    endif()
    if(header MATCHES "^(tools|tutorials|tests)/")
      set(${problem} "${header}: nothing includes tools, tutorials or tests" PARENT_SCOPE)
    elseif(NOT its_folder)
      set(${problem} "${header} is in a folder that the layer table does not name" PARENT_SCOPE)
    elseif(its_layer GREATER_EQUAL own_layer)
      set(${problem} "${own_folder} (layer ${own_layer}) must not include ${header} (layer ${its_layer})" PARENT_SCOPE)
    endif()
  endif()
endfunction()

set(sources "")
foreach(folder engine kernels datasets tools tutorials tests)
  file(GLOB_RECURSE found RELATIVE ${ROOT} ${ROOT}/${folder}/*.h ${ROOT}/${folder}/*.cpp ${ROOT}/${folder}/*.cu)
  list(APPEND sources ${found})
endforeach()
if(EXISTS ${ROOT}/lockstep.h)
  list(APPEND sources lockstep.h)
endif()
if(NOT sources)
  message(FATAL_ERROR "[architecture] expected sources under ROOT=${ROOT}, found none")
endif()

set(num_breaches 0)
foreach(path IN LISTS sources)
  find_layer("${path}" folder layer)
  if(NOT folder AND NOT path MATCHES "^tests/")
    message("${path}:1: this folder is not in the layer table")
    math(EXPR num_breaches "${num_breaches} + 1")
  endif()
  execute_process(
    COMMAND grep -nE "^[ \t]*#[ \t]*(include|if|ifdef|ifndef|elif)" ${path}
    WORKING_DIRECTORY ${ROOT} OUTPUT_VARIABLE directives)
  string(REGEX REPLACE "[][;]" "" directives "${directives}")
  string(REGEX REPLACE "\n" ";" directives "${directives}")
  foreach(directive IN LISTS directives)
    set(problem "")
    if(directive MATCHES "^([0-9]+):[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"]+)[>\"]")
      set(line ${CMAKE_MATCH_1})
      check_include("${path}" "${CMAKE_MATCH_2}" problem)
    elseif(path MATCHES "${no_cuda_conditions}"
        AND directive MATCHES "^([0-9]+):[ \t]*#[ \t]*(if|ifdef|ifndef|elif)[^a-z].*CUDA")
      set(line ${CMAKE_MATCH_1})
      set(problem "no condition on CUDA in operations, layers and tutorials: leave out files instead")
    endif()
    if(problem)
      message("${path}:${line}: ${problem}")
      math(EXPR num_breaches "${num_breaches} + 1")
    endif()
  endforeach()
endforeach()

list(LENGTH sources num_sources)
if(num_breaches GREATER 0)
  message(FATAL_ERROR "[architecture] ${num_breaches} breaches of the layer table in ${num_sources} files")
endif()
message(STATUS "[architecture] ${num_sources} files keep to the layer table")
