// Part of the fake CUDA driver: streams that capture launches into a graph, and what a graph's nodes hold.
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { MAX_CAPTURES = 16, KERNEL_NODE = 0, ATTRIBUTE_CLUSTER = 4 };

typedef struct Node {
  struct Node *next;
  CapturedLaunch launch;
  void **parameters;  // copies, in the kernel's order
} Node;

struct Graph {
  Node *first, *last;
  size_t nodes;
};

static struct {
  CUstream stream;
  struct Graph *graph;
} captures[MAX_CAPTURES];

static struct Graph **capture_of(CUstream stream) {
  for (int i = 0; i < MAX_CAPTURES; i++)
    if (captures[i].graph && captures[i].stream == stream) return &captures[i].graph;
  return NULL;
}

int is_captured(CUstream stream) { return capture_of(stream) != NULL; }

CUresult capture_launch(const CapturedLaunch *launch, CUstream stream, void **parameters) {
  struct Graph *graph = *capture_of(stream);
  const Kernel *kernel = launch->kernel;
  Node *node = calloc(1, sizeof(*node));
  void **copies = calloc(kernel->parameters + 1, sizeof(*copies));
  if (!node || !copies) return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; i < kernel->parameters; i++) {
    copies[i] = malloc(kernel->parameter[i].size);
    if (!copies[i]) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copies[i], parameters[i], kernel->parameter[i].size);
  }
  *node = (Node){NULL, *launch, copies};
  if (graph->last) graph->last->next = node;
  if (!graph->first) graph->first = node;
  graph->last = node;
  graph->nodes++;
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  CALL(cuStreamBeginCapture_v2, NEED_INIT, ",'stream':'0x%llx','mode':%d", (unsigned long long)(uintptr_t)stream, mode);
  CUcontext context;
  if ((uintptr_t)stream <= 1 || capture_of(stream) || mode < 0 || mode > 2) return done(CUDA_ERROR_INVALID_VALUE);
  CUresult result = stream_context(stream, &context);
  if (result != CUDA_SUCCESS) return done(result);
  for (int i = 0; i < MAX_CAPTURES; i++) {
    if (captures[i].graph) continue;
    captures[i].stream = stream;
    captures[i].graph = calloc(1, sizeof(struct Graph));
    return done(captures[i].graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
  }
  return done(CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  CALL(cuStreamEndCapture, NEED_INIT, ",'stream':'0x%llx'", (unsigned long long)(uintptr_t)stream);
  struct Graph **capture = capture_of(stream);
  if (!capture || !graph) return done(CUDA_ERROR_INVALID_VALUE);
  *graph = *capture;
  *capture = NULL;
  return done(CUDA_SUCCESS);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  CALL(cuGraphGetNodes, NEED_INIT, NULL);
  if (!graph || !count) return done(CUDA_ERROR_INVALID_VALUE);
  size_t i = 0;
  for (Node *node = graph->first; nodes && node && i < *count; node = node->next) nodes[i++] = node;
  *count = nodes ? i : graph->nodes;
  return done(CUDA_SUCCESS);
}

typedef struct {
  CUfunction function;
  uint32_t grid[3], block[3], shared;
  void **parameters, **extra;
  CUkernel kernel;
  CUcontext context;
} NodeParams;

_Static_assert(sizeof(NodeParams) == 72, "CUDA_KERNEL_NODE_PARAMS_v2 on 64-bit machines");

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, NodeParams *params) {
  CALL(cuGraphKernelNodeGetParams_v2, NEED_INIT, NULL);
  if (!node || !params) return done(CUDA_ERROR_INVALID_VALUE);
  const CapturedLaunch *l = &((Node *)node)->launch;
  *params = (NodeParams){.function = l->function, .shared = l->shared, .parameters = ((Node *)node)->parameters};
  memcpy(params->grid, l->grid, sizeof(l->grid));
  memcpy(params->block, l->block, sizeof(l->block));
  return done(CUDA_SUCCESS);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, int attribute, uint32_t *value) {
  CALL(cuGraphKernelNodeGetAttribute, NEED_INIT, ",'attribute':%d", attribute);
  if (!node || !value || attribute != ATTRIBUTE_CLUSTER) return done(CUDA_ERROR_INVALID_VALUE);
  memcpy(value, ((Node *)node)->launch.cluster, sizeof(((Node *)node)->launch.cluster));
  return done(CUDA_SUCCESS);
}
