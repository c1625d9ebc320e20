# Which architectures LockstepGpus.cmake chooses, and which GPUs it finds:
#   cmake -DMODULE=<LockstepGpus.cmake> -DSCRATCH=<folder> -P gpus_test.cmake
cmake_minimum_required(VERSION 3.22)
include(${MODULE})

function(expect wanted known chosen)
  lockstep_choose_architectures(found "${known}" "${wanted}")
  if(NOT "${found}" STREQUAL "${chosen}")
    message(SEND_ERROR "[gpus] for '${wanted}' expected '${chosen}', found '${found}'")
  endif()
endfunction()

set(cuda12 50 52 60 61 70 72 75 80 86 87 89 90)
set(cuda13 75 80 86 87 88 89 90 100 103 110 120 121)
expect("86" "${cuda12}" "86-real")
expect("75;90" "${cuda13}" "75-real;90-real")
expect("120" "${cuda12}" "90-virtual")       # newer than the compiler
expect("90;120" "${cuda12}" "90-real;90-virtual")
expect("100;120" "${cuda13}" "100-real;120-real")
expect("61" "${cuda13}" "")                  # older than it
expect("" "${cuda13}" "75-virtual")
expect("unknown" "${cuda12}" "70-virtual")
expect("release" "${cuda13}" "75-real;80-real;86-real;89-real;90")

function(expect_gpus found)
  lockstep_find_gpus(gpus)
  if(NOT "${gpus}" STREQUAL "${found}")
    message(SEND_ERROR "[gpus] expected '${found}', found '${gpus}'")
  endif()
endfunction()

# A machine whose nvidia-smi says what is wanted.
function(say text status)
  file(WRITE ${SCRATCH}/bin/nvidia-smi "#!/bin/sh\nprintf '${text}'\nexit ${status}\n")
  file(CHMOD ${SCRATCH}/bin/nvidia-smi PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
set(ROOT ${SCRATCH}/root)
set(ENV{PATH} "${SCRATCH}/bin:$ENV{PATH}")
say("9.0\\n8.6\\n8.6\\n12.0\\n" 0)
expect_gpus("86;90;120")
say("9.0\\nWARNING: infoROM is corrupted at gpu 0000:3B:00.0\\n" 14)
expect_gpus("90")
say("NVIDIA-SMI has failed\\n" 9)
expect_gpus("")
say("Failed to initialize NVML: Driver/library version mismatch\\nNVML library version: 535.183\\n" 18)
expect_gpus("")
file(WRITE ${SCRATCH}/root/dev/nvidia0 "")
expect_gpus("unknown")
file(REMOVE_RECURSE ${SCRATCH})
