# The three kinds of target that the folders declare: libraries, programs and tests.

add_library(lockstep_options INTERFACE)
target_compile_features(lockstep_options INTERFACE cxx_std_20)
target_compile_options(lockstep_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor>
  $<$<AND:$<BOOL:${LOCKSTEP_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>)
if(LOCKSTEP_SANITIZE STREQUAL "address")
  set(sanitizer_flags -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
elseif(LOCKSTEP_SANITIZE STREQUAL "thread")
  set(sanitizer_flags -fsanitize=thread -fno-omit-frame-pointer)
elseif(LOCKSTEP_SANITIZE)
  message(FATAL_ERROR "LOCKSTEP_SANITIZE is '${LOCKSTEP_SANITIZE}'; use address or thread, or leave it empty")
endif()
if(LOCKSTEP_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "LOCKSTEP_FUZZ needs clang, whose libFuzzer it uses: CXX=clang++-16, with a fresh build folder")
  endif()
  list(APPEND sanitizer_flags -fsanitize=fuzzer-no-link)
endif()
target_compile_options(lockstep_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${sanitizer_flags}>")
target_link_options(lockstep_options INTERFACE ${sanitizer_flags})

# GCC 12 and 13's thread sanitizer cannot start where the kernel randomises more than 28 address bits, as
# Ubuntu 24.04 does: programs that the build and CTest start then run without address randomisation.
if(LOCKSTEP_SANITIZE STREQUAL "thread" AND EXISTS /proc/sys/vm/mmap_rnd_bits)
  file(READ /proc/sys/vm/mmap_rnd_bits address_bits)
  execute_process(COMMAND setarch -R true RESULT_VARIABLE setarch_result OUTPUT_QUIET ERROR_QUIET)
  if(address_bits GREATER 28 AND setarch_result EQUAL 0)
    set(CMAKE_CROSSCOMPILING_EMULATOR setarch -R)
  endif()
endif()

# ccache makes the second build of the same sources, in whatever folder, a matter of seconds. It must be told that
# a precompiled header is what the command line says it is.
find_program(LOCKSTEP_CCACHE ccache)
mark_as_advanced(LOCKSTEP_CCACHE)
if(LOCKSTEP_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${LOCKSTEP_CCACHE})
endif()

# LOCKSTEP_QUICK makes a build from nothing quick in three ways: sources are compiled several at once, with headers that
# are compiled already, and less optimised. The other builds do none of this: they compile an edited source sooner, and
# show that each source is complete in itself.

# lockstep_unite(lockstep_plan a.cpp shm/b.cpp): up to 25 sources are compiled at once, because their headers, and
# what they make of templates, cost more than they do.
function(lockstep_unite target)
  if(NOT LOCKSTEP_QUICK)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  set(place 0)
  foreach(source IN LISTS ARGN)
    math(EXPR group "${place} / 25")
    math(EXPR place "${place} + 1")
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP group_${group})
  endforeach()
endfunction()

# GCC spends a sixth of its time on freeing memory that a machine has to spare: half a GB of it stays.
if(LOCKSTEP_QUICK AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(lockstep_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-expand=100>"
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-heapsize=524288>")
endif()

# Tests and tutorials are many programs: they go without symbols, and without functions that they don't call, which
# a unity build would otherwise give them.
if(LOCKSTEP_QUICK)
  target_compile_options(lockstep_options INTERFACE
    $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-ffunction-sections>)
endif()
function(lockstep_strip target)
  if(LOCKSTEP_QUICK)
    target_link_options(${target} PRIVATE $<$<CONFIG:Release>:-s> $<$<CONFIG:Release>:LINKER:--gc-sections>)
  endif()
endfunction()

# lockstep_compile_for_speed(node.cpp ...): what every operation passes through. Each by itself, since a compiler
# inlines less the more there is in one unit.
function(lockstep_compile_for_speed)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -O3)
  endif()
endfunction()

# lockstep_compile_quickly(tutorials tool): less optimised, since in its run time the engine alone counts. Kinds:
#   tool   tools, tutorials, libraries whose code runs once a program
#   test   not at all, and without symbols
# The headers of a kind, which cost more than most of its sources, are compiled once.
set(tool_options -Og)
set(test_options -O0)
if(LOCKSTEP_SMALL)
  set(tool_options -Os)
  set(test_options -Os)
endif()
set(tool_headers <filesystem> <map> <fmt/format.h> <nlohmann/json.hpp> "${PROJECT_SOURCE_DIR}/lockstep.h")
set(test_headers <functional> <map> <memory> <string> <thread> <vector> <gmock/gmock.h> <gtest/gtest.h>)
function(lockstep_compile_quickly target kind)
  if(NOT LOCKSTEP_QUICK)
    return()
  endif()
  set(options $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:${${kind}_options}>)
  if(kind STREQUAL "tool")
    list(APPEND options $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)  # programs, too: so that they share headers with libraries
  else()
    lockstep_strip(${target})
  endif()
  target_compile_options(${target} PRIVATE ${options})
  set(compiled lockstep_${kind}_headers)
  if(NOT TARGET ${compiled})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/${compiled}.cpp CONTENT "")
    add_library(${compiled} OBJECT ${PROJECT_BINARY_DIR}/generated/${compiled}.cpp)
    target_link_libraries(${compiled} PRIVATE lockstep_options fmt::fmt nlohmann_json::nlohmann_json)
    if(kind STREQUAL "test")
      target_link_libraries(${compiled} PRIVATE GTest::gmock)
    endif()
    target_include_directories(${compiled} PRIVATE ${PROJECT_SOURCE_DIR})
    target_compile_options(${compiled} PRIVATE ${options})
    target_precompile_headers(${compiled} PRIVATE ${${kind}_headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${compiled})
endfunction()

# lockstep_library(plan [ONCE] SOURCES a.cpp b.cpp DEPENDS core [PRIVATE_DEPENDS Eigen3::Eigen])
# makes lockstep_plan with the alias lockstep::plan. DEPENDS names other lockstep libraries or targets. ONCE: its
# code runs once a program and not in every step, so a quick build optimises it less.
function(lockstep_library name)
  cmake_parse_arguments(arg "ONCE" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  set(target lockstep_${name})
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(kind "")  # BUILD_SHARED_LIBS decides, but for what the programs alone share
  if(folder MATCHES "^tools(/|$)" OR (folder MATCHES "^tutorials(/|$)" AND NOT LOCKSTEP_SMALL))
    set(kind STATIC)
  endif()
  add_library(${target} ${kind} ${arg_SOURCES})
  if(kind OR arg_ONCE)
    lockstep_compile_quickly(${target} tool)
  endif()
  lockstep_unite(${target} ${arg_SOURCES})
  add_library(lockstep::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include/lockstep>)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:lockstep_options>)
  foreach(dependency ${arg_DEPENDS})
    if(dependency MATCHES "::")
      target_link_libraries(${target} PUBLIC ${dependency})
    else()
      target_link_libraries(${target} PUBLIC lockstep_${dependency})
    endif()
  endforeach()
  foreach(dependency ${arg_PRIVATE_DEPENDS})
    if(dependency MATCHES "^(Eigen3|nlohmann_json|CLI11)::")
      set(dependency $<BUILD_INTERFACE:${dependency}>)  # only headers: who links the library needs nothing
    endif()
    target_link_libraries(${target} PRIVATE ${dependency})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LIBRARIES ${target})
endfunction()

# lockstep_program(01_name SOURCES 01_name.cpp DEPENDS nn optim) makes <build>/bin/01_name.
function(lockstep_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  lockstep_unite(${name} ${arg_SOURCES})
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  if(arg_DEPENDS AND NOT folder STREQUAL "tests/bench")  # which measures
    lockstep_compile_quickly(${name} tool)
  endif()
  if(folder MATCHES "^(tests|tutorials)(/|$)")
    lockstep_strip(${name})
  endif()
  list(TRANSFORM arg_DEPENDS REPLACE "^([^:]+)$" "lockstep_\\1")
  target_link_libraries(${name} PRIVATE lockstep_options ${arg_DEPENDS})
endfunction()

# lockstep_test(core SOURCES a_test.cpp [ALONE b_test.cpp] DEPENDS core [LABELS slow] [DEVICE | DEVICES])
# makes core_tests, one CTest per TEST, with the label cpu. ALONE: sources that use names of others for something
# else, so they are not compiled with them. DEVICE, DEVICES: the tests name their one or several devices through
# tests/support/devices.h; where this build has CUDA they run again on one GPU (gpu.core..., label gpu), and
# those of several devices on two (multi_gpu.core..., labels gpu and multi_gpu). Emulated GPUs are slow, so there those
# of several devices run on two alone: the third device shares a GPU with the first.
function(lockstep_test name)
  cmake_parse_arguments(arg "DEVICE;DEVICES" "" "SOURCES;ALONE;DEPENDS;LABELS" ${ARGN})
  set(target ${name}_tests)
  set(main GTest::gtest_main)
  if(arg_DEVICE OR arg_DEVICES)
    set(main "")
    list(APPEND arg_SOURCES ${PROJECT_SOURCE_DIR}/tests/support/device_main.cpp)
    list(APPEND arg_DEPENDS tensor)
  endif()
  add_executable(${target} ${arg_SOURCES} ${arg_ALONE})
  list(TRANSFORM arg_DEPENDS REPLACE "^([^:]+)$" "lockstep_\\1")
  target_link_libraries(${target} PRIVATE lockstep_options ${arg_DEPENDS} GTest::gmock ${main})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  lockstep_compile_quickly(${target} test)
  lockstep_unite(${target} ${arg_SOURCES})
  lockstep_discover(${target} "${name}." "cpu;${arg_LABELS}" "")
  if((arg_DEVICE OR arg_DEVICES) AND LOCKSTEP_HAVE_CUDA)
    set(environment LOCKSTEP_TEST_DEVICE=cuda)
    if(LOCKSTEP_CUDA STREQUAL "EMULATED")
      list(APPEND environment LOCKSTEP_TUNING=off)  # an emulated GPU's times mean nothing
    endif()
    if(arg_DEVICE OR NOT LOCKSTEP_CUDA STREQUAL "EMULATED")
      lockstep_discover(${target} "gpu.${name}." "gpu;${arg_LABELS}" "${environment}")
    endif()
    if(arg_DEVICES)
      lockstep_discover(${target} "multi_gpu.${name}." "gpu;multi_gpu;${arg_LABELS}"
        "${environment};LOCKSTEP_TEST_GPUS=2")
    endif()
  endif()
endfunction()

# One CTest per TEST of a program, with a prefix, labels and environment (may be empty); further arguments are those of
# gtest_discover_tests.
function(lockstep_discover target prefix labels environment)
  string(REPLACE "." "_" list_name "${target}_${prefix}list")
  set(timeout 300)
  if("slow" IN_LIST labels)
    set(timeout 3600)
  endif()
  if("gpu" IN_LIST labels AND NOT "slow" IN_LIST labels)
    set_property(GLOBAL APPEND PROPERTY LOCKSTEP_GPU_PROGRAMS ${target})
  endif()
  gtest_discover_tests(${target} ${ARGN} TEST_PREFIX "${prefix}" TEST_LIST ${list_name} DISCOVERY_TIMEOUT 60
    NO_PRETTY_VALUES PROPERTIES TIMEOUT ${timeout})
  # gtest_discover_tests would take the first value of a list only.
  set(list_script ${CMAKE_CURRENT_BINARY_DIR}/${list_name}_properties.cmake)
  file(CONFIGURE OUTPUT ${list_script} @ONLY
    CONTENT "if(@list_name@)\n  set_tests_properties(\${@list_name@} PROPERTIES LABELS \"@labels@\" ENVIRONMENT \"@environment@\")\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${list_script})
endfunction()
