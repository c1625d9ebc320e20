// Graphs: what a capture recorded, run again and again.
//
// Nodes of one captured stream run in order. Different streams run in different threads, and wait
// for each other only where the capture did: a dependency that is missing is a real race.
#include "tests/emulated_gpu/runtime.h"

namespace {

// The nodes of a graph when it was instantiated, ready to run.
struct Program {
  std::vector<CUgraphNode_st> nodes;
  std::vector<std::unique_ptr<emulated_gpu::Worker>> workers;  // lanes 1, 2, ...
};

void run_lane(const Program& program, std::size_t lane,
              const std::vector<std::shared_ptr<emulated_gpu::Mark>>& done) {
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const CUgraphNode_st& node = program.nodes[i];
    if (node.lane != lane) continue;
    for (const std::size_t earlier : node.dependencies) done[earlier]->wait();
    node.work();
    done[i]->pass();
  }
}

void run(const std::shared_ptr<Program>& program) {
  std::vector<std::shared_ptr<emulated_gpu::Mark>> done(program->nodes.size());
  for (auto& mark : done) mark = std::make_shared<emulated_gpu::Mark>();
  for (std::size_t lane = 1; lane <= program->workers.size(); ++lane) {
    program->workers[lane - 1]->submit([program, lane, done] { run_lane(*program, lane, done); });
  }
  run_lane(*program, 0, done);
  for (const auto& mark : done) mark->wait();
}

}  // namespace

struct CUgraphExec_st {
  std::shared_ptr<Program> program;
  std::shared_ptr<emulated_gpu::Mark> last_launch;  // launches of one graph do not overlap
};

using namespace emulated_gpu;

namespace {

cudaError_t instantiate(cudaGraphExec_t* exec, cudaGraph_t graph) {
  if (exec == nullptr || graph == nullptr) return cudaErrorInvalidValue;
  wait_for_host_functions("cudaGraphInstantiate");
  auto program = std::make_shared<Program>();
  for (const auto& node : graph->nodes) program->nodes.push_back(*node);
  for (std::size_t lane = 1; lane < graph->num_lanes; ++lane) {
    program->workers.push_back(std::make_unique<Worker>());
  }
  *exec = new CUgraphExec_st{std::move(program), nullptr};
  return cudaSuccess;
}

cudaError_t launch_graph(cudaGraphExec_t exec, cudaStream_t handle) {
  if (exec == nullptr) return cudaErrorInvalidValue;
  const std::lock_guard lock(state().mutex);
  const auto stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (is_capturing(*stream)) return cudaErrorNotSupported;  // on hardware a graph may hold another
  const cudaError_t error = submit(*stream, [program = exec->program, before = exec->last_launch] {
    if (before) before->wait();
    run(program);
  });
  exec->last_launch = stream->tail;
  return error;
}

}  // namespace

cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                           unsigned long long flags) {
  return api_on_gpu(
      [&] { return flags != 0 ? cudaErrorNotSupported : instantiate(pGraphExec, graph); });
}

cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
  return api_on_gpu([&] { return launch_graph(graphExec, stream); });
}

// A launch that still runs keeps what it needs.
cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  return api_on_gpu([&] {
    if (graphExec == nullptr) return cudaErrorInvalidValue;
    delete graphExec;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph) {
  return api_on_gpu([&] {
    if (graph == nullptr) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}

// Only the number of nodes.
cudaError_t CUDARTAPI cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes,
                                        std::size_t* numNodes) {
  return api_on_gpu([&] {
    if (graph == nullptr || nodes != nullptr || numNodes == nullptr) return cudaErrorInvalidValue;
    *numNodes = graph->nodes.size();
    return cudaSuccess;
  });
}
