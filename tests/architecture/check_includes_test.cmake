# Shows that check_includes.cmake catches each kind of breach, and passes what is allowed:
#   cmake -DCHECK=<check_includes.cmake> -DTABLE=<docs/architecture.md> -DSCRATCH=<folder>
#     -P check_includes_test.cmake

# expect(<verdict> <path> <line of code>): a tree with this one file is accepted, or refused by a message
# that names path and line 2.
function(expect verdict path line)
  file(REMOVE_RECURSE ${SCRATCH})
  file(WRITE ${SCRATCH}/${path} "#include <vector>\n${line}\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${SCRATCH} -DTABLE=${TABLE} -P ${CHECK}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(verdict STREQUAL "accepted" AND NOT result EQUAL 0)
    message(SEND_ERROR "${path} with '${line}' should be accepted, but: ${output}")
  elseif(verdict STREQUAL "refused" AND (result EQUAL 0 OR NOT output MATCHES "${path}:2: "))
    message(SEND_ERROR "${path} with '${line}' should be refused with its line, but: ${output}")
  endif()
endfunction()

expect(accepted engine/plan/ring.cpp "#include \"engine/plan/ring.h\"")
expect(accepted engine/plan/ring.cpp "#include \"engine/core/error.h\"")
expect(accepted kernels/cpu/gemm.cpp "#include <Eigen/Core>")
expect(accepted kernels/cpu/gemm.cpp "#include \"kernels/backend.h\"")
expect(accepted kernels/cuda/gemm.cu "#include <cuda_runtime.h>")
expect(accepted engine/comm/nccl/nccl_comm.cpp "#include <cuda_runtime.h>")
expect(accepted tools/train.cpp "#include \"engine/parallel/ddp/ddp.h\"")
expect(accepted tests/engine/core/a_test.cpp "#include \"tests/support/run_ranks.h\"")
expect(accepted tools/grading/grade.h "#include \"tutorials/labs/judging/lab.h\"")
expect(accepted engine/core/log.cpp "#ifdef __CUDA_ARCH__")
expect(accepted lockstep.h "#include \"engine/parallel/ddp/ddp.h\"")
expect(accepted tutorials/03_train.cpp "#include <lockstep.h>")

expect(refused engine/core/error.h "#include \"engine/plan/ring.h\"")
expect(refused engine/autograd/ops/elementwise.cpp "#include \"engine/comm/communicator.h\"")
expect(refused engine/optim/optimizer.h "  #  include \"engine/nn/module.h\"")
expect(refused kernels/cpu/gemm.cpp "#include \"engine/tensor/tensor.h\"")
expect(refused engine/nn/layers.cpp "#include \"tests/support/run_ranks.h\"")
expect(refused engine/nn/layers.cpp "#include \"tutorials/common.h\"")
expect(refused engine/nn/layers.cpp "#include \"tutorials/labs/lab.h\"")
expect(refused tutorials/labs/judging/lab.h "#include \"tools/commands.h\"")
expect(refused tutorials/03_train.cpp "#include \"tools/train.h\"")
expect(refused engine/nn/layers.cpp "#include \"engine/unheard_of/a.h\"")
expect(refused engine/runtime/device.cpp "#include <cuda_runtime.h>")
expect(refused engine/comm/transport/thread.cpp "#include <nccl.h>")
expect(refused engine/tensor/tensor.cpp "#include <Eigen/Dense>")
expect(refused engine/nn/layers.cpp "#include <lockstep.h>")
expect(refused lockstep.h "#include \"tutorials/common.h\"")
expect(refused engine/nn/layers.cpp "#ifdef LOCKSTEP_HAVE_CUDA")
expect(refused tutorials/03_train.cpp "#if defined(LOCKSTEP_HAVE_CUDA) && 1")

file(REMOVE_RECURSE ${SCRATCH})
