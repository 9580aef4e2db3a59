// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/cuda/graph.h"

#include <utility>

#include "kernels/device/cuda/check.h"
#include "kernels/device/cuda/driver.h"
#include "kernels/device/error.h"

namespace tandem {
namespace {

KernelDomain read_domain(cudaGraphNode_t node) {
  CUDA_KERNEL_NODE_PARAMS params{};
  TANDEM_CHECK(driver().graph_kernel_node_get_params(node, &params));
  const char* kernel = nullptr;
  if (params.kern != nullptr)
    TANDEM_CHECK(driver().kernel_get_name(&kernel, params.kern));
  else
    TANDEM_CHECK(driver().func_get_name(&kernel, params.func));
  CUlaunchAttributeValue logical{}, map{};
  TANDEM_CHECK(driver().graph_kernel_node_get_attribute(node, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
                                                        &logical));
  TANDEM_CHECK(driver().graph_kernel_node_get_attribute(
      node, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &map));
  const bool remote = logical.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
  return {kernel, remote, remote ? map.memSyncDomainMap.remote : map.memSyncDomainMap.default_};
}

void walk(cudaGraph_t graph, std::vector<KernelDomain>& domains) {
  std::size_t count = 0;
  TANDEM_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  TANDEM_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    TANDEM_CHECK(cudaGraphNodeGetType(node, &type));
    if (type == cudaGraphNodeTypeKernel) {
      domains.push_back(read_domain(node));
    } else if (type == cudaGraphNodeTypeGraph) {
      cudaGraph_t child = nullptr;
      TANDEM_CHECK(cudaGraphChildGraphNodeGetGraph(node, &child));
      walk(child, domains);
    }
  }
}

}  // namespace

Graph<Cuda> Graph<Cuda>::capture(Context<Cuda>& ctx, const std::function<void()>& body) {
  const cudaStream_t stream = ctx.compute().handle();
  Graph graph;
  TANDEM_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    body();
  } catch (...) {
    cudaGraph_t partial = nullptr;
    cudaStreamEndCapture(stream, &partial);
    if (partial != nullptr) TANDEM_CHECK_NOEXCEPT(cudaGraphDestroy(partial));
    cudaGetLastError();  // The capture was invalidated on purpose; its error is not news.
    throw;
  }
  TANDEM_CHECK(cudaStreamEndCapture(stream, &graph.graph_));
  // Nodes keep the priority of the stream they were captured from: comm blocks get SMs first.
  TANDEM_CHECK(cudaGraphInstantiate(&graph.executable_, graph.graph_,
                                    cudaGraphInstantiateFlagUseNodePriority));
  TANDEM_CHECK(cudaGraphUpload(graph.executable_, stream));
  return graph;
}

Graph<Cuda>::Graph(Graph&& other) noexcept
    : graph_(std::exchange(other.graph_, nullptr)),
      executable_(std::exchange(other.executable_, nullptr)) {}

Graph<Cuda>& Graph<Cuda>::operator=(Graph&& other) noexcept {
  std::swap(graph_, other.graph_);
  std::swap(executable_, other.executable_);
  return *this;
}

Graph<Cuda>::~Graph() {
  if (executable_ != nullptr) TANDEM_CHECK_NOEXCEPT(cudaGraphExecDestroy(executable_));
  if (graph_ != nullptr) TANDEM_CHECK_NOEXCEPT(cudaGraphDestroy(graph_));
}

void Graph<Cuda>::launch(Stream<Cuda>& stream) {
  TANDEM_CHECK(cudaGraphLaunch(executable_, stream.handle()));
}

std::vector<KernelDomain> Graph<Cuda>::kernel_domains() const {
  std::vector<KernelDomain> domains;
  if (graph_ != nullptr) walk(graph_, domains);
  return domains;
}

void Graph<Cuda>::require_domains(int physical, int physical_remote) const {
  for (const KernelDomain& node : kernel_domains()) {
    const int wanted = node.remote ? physical_remote : physical;
    TANDEM_ASSERT(node.physical == wanted, "captured kernel ", node.kernel,
                  " is in memory sync domain ", node.physical, " instead of ", wanted);
  }
}

}  // namespace tandem
