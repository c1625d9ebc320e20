# Decides whether this build has CUDA: sets LOCKSTEP_HAVE_CUDA to ON or OFF, and makes the target
# lockstep_cuda, which brings the CUDA runtime to the libraries that use it. cuBLASLt and NCCL are loaded
# when they are needed.
#
# LOCKSTEP_CUDA=OFF never looks; AUTO takes CUDA where there are an NVIDIA GPU and a usable compiler; ON needs no
# GPU, and stops without a compiler. LOCKSTEP_GPU_ARCHITECTURES=RELEASE compiles for all GPUs, not this machine's.
# Usable means nvcc 12.0 or newer, the first that understands C++20, with a host compiler it accepts.
# EMULATED compiles the same code, kernels too, as C++ for the GPU that tests/emulated_gpu imitates on the
# CPU; it needs the toolkit's headers only.

# lockstep_cuda_sources(lockstep_kernels a.cu b.cpp) adds sources that exist in builds with CUDA only.
function(lockstep_cuda_sources target)
  target_sources(${target} PRIVATE ${ARGN})
  # An installed library brings CUDA's own targets; the emulated GPU stays in the build folder.
  if(NOT LOCKSTEP_CUDA STREQUAL "EMULATED")
    target_link_libraries(${target} PRIVATE ${LOCKSTEP_CUDART})
  else()
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:lockstep_cuda>)
    # Some headers there stand before those of the project, so the folder comes before the project's.
    target_include_directories(${target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/emulated_gpu/include)
    list(FILTER ARGN INCLUDE REGEX "[.]cu$")
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX
      COMPILE_OPTIONS "-Wno-unknown-pragmas;-x;c++;-include;${PROJECT_SOURCE_DIR}/tests/emulated_gpu/simt.h")
  endif()
endfunction()

set(LOCKSTEP_HAVE_CUDA OFF)
if(NOT LOCKSTEP_CUDA MATCHES "^(AUTO|ON|OFF|EMULATED)$")
  message(FATAL_ERROR "LOCKSTEP_CUDA is '${LOCKSTEP_CUDA}'; use AUTO, ON, OFF or EMULATED")
endif()
if(LOCKSTEP_CUDA STREQUAL "OFF")
  return()
endif()
if(LOCKSTEP_CUDA STREQUAL "EMULATED")
  find_path(LOCKSTEP_CUDA_INCLUDE cublasLt.h HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include REQUIRED)
  mark_as_advanced(LOCKSTEP_CUDA_INCLUDE)
  add_library(lockstep_cuda INTERFACE)
  target_include_directories(lockstep_cuda SYSTEM INTERFACE $<BUILD_INTERFACE:${LOCKSTEP_CUDA_INCLUDE}>)
  target_link_libraries(lockstep_cuda INTERFACE lockstep_emulated_gpu)
  set(LOCKSTEP_HAVE_CUDA ON)
  message(STATUS "CUDA: emulated on the CPU")
  return()
endif()

# GPU code is compiled for the GPU that is there, so a compiler alone does not build it.
include(LockstepGpus)
if(NOT LOCKSTEP_GPU_ARCHITECTURES MATCHES "^(AUTO|RELEASE)$")
  message(FATAL_ERROR "LOCKSTEP_GPU_ARCHITECTURES is '${LOCKSTEP_GPU_ARCHITECTURES}'; use AUTO or RELEASE, or "
    "name architectures in CMAKE_CUDA_ARCHITECTURES")
endif()
lockstep_find_gpus(gpus)
if(LOCKSTEP_CUDA STREQUAL "AUTO" AND NOT gpus AND LOCKSTEP_GPU_ARCHITECTURES STREQUAL "AUTO"
    AND NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  message(STATUS "CUDA: off, this machine has no NVIDIA GPU; the preset cuda, or -DLOCKSTEP_CUDA=ON, compiles "
    "the GPU code all the same")
  return()
endif()

# A toolkit may have been installed since the last configuration, and its usual folder is often not in PATH.
if(NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER CACHE)
  find_program(LOCKSTEP_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(LOCKSTEP_NVCC)
  if(LOCKSTEP_NVCC AND NOT DEFINED ENV{CUDACXX})
    set(ENV{CUDACXX} ${LOCKSTEP_NVCC})
  endif()
endif()
include(CheckLanguage)
check_language(CUDA)

set(cuda_problem "")
if(NOT CMAKE_CUDA_COMPILER)
  set(cuda_problem "no working CUDA compiler was found (looked for nvcc in CUDACXX, PATH and /usr/local/cuda/bin)")
else()
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
  if(NOT nvcc_version MATCHES "release ([0-9]+\\.[0-9]+)")
    set(cuda_problem "${CMAKE_CUDA_COMPILER} does not run as an nvcc")
  elseif(CMAKE_MATCH_1 VERSION_LESS 12.0)
    set(cuda_problem "${CMAKE_CUDA_COMPILER} is version ${CMAKE_MATCH_1}, and C++20 needs 12.0 or newer")
  endif()
endif()
if(cuda_problem)
  if(LOCKSTEP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LOCKSTEP_CUDA=ON, but ${cuda_problem}. "
      "Install the CUDA toolkit or set CUDACXX, or use the preset release or cpu.")
  endif()
  message(STATUS "CUDA: off, ${cuda_problem}")
  return()
endif()

# CMAKE_CUDA_ARCHITECTURES, said by the user, stands.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known_architectures)
  string(REGEX MATCHALL "[0-9]+" known_architectures "${known_architectures}")
  if(LOCKSTEP_GPU_ARCHITECTURES STREQUAL "RELEASE")
    set(gpus release)
  endif()
  lockstep_choose_architectures(CMAKE_CUDA_ARCHITECTURES "${known_architectures}" "${gpus}")
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    message(STATUS "CUDA: off, this machine's GPUs (compute capability ${gpus}, without the dot) are older than "
      "what ${CMAKE_CUDA_COMPILER} compiles for; -DCMAKE_CUDA_ARCHITECTURES=... names others")
    return()
  endif()
endif()

enable_language(CUDA)
# CMake 3.25 silently ignores CMAKE_CUDA_STANDARD 20, so the flag goes to nvcc directly.
target_compile_options(lockstep_options INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
# 554: a view of mutable memory converts to one of constant memory, and a constant one not to itself.
target_compile_options(lockstep_options INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-diag-suppress=554>)
if(LOCKSTEP_CCACHE AND NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${LOCKSTEP_CCACHE})
endif()
find_package(CUDAToolkit REQUIRED)
set(LOCKSTEP_CUDA_VERSION ${CUDAToolkit_VERSION} CACHE INTERNAL "of the toolkit, for scripts/gpu_check")
# GPU code is in a shared library of its folder once, not in each of the programs. Those libraries share one CUDA
# runtime, too.
option(BUILD_SHARED_LIBS "Make shared libraries of the engine" ON)
set(LOCKSTEP_CUDART CUDA::cudart_static)
if(BUILD_SHARED_LIBS)
  set(LOCKSTEP_CUDART CUDA::cudart)
endif()
add_library(lockstep_cuda INTERFACE)
target_link_libraries(lockstep_cuda INTERFACE ${LOCKSTEP_CUDART})
set(LOCKSTEP_HAVE_CUDA ON)
message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
