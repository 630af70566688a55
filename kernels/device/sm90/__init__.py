"""The fast set for Hopper, in Gluon. A kernel is put together from a scheduler, a loader, a main loop and an epilogue.

scheduler     groups.py finds where packed groups begin and end; tile_queue.py hands tiles from the loading warp on;
              Shape in loader.py has the tile order of one product
loader.py     the pipeline of shared-memory stages that TMA fills
wgmma_parts.py, flex.py   tiles of any width: an accumulator in parts; work, loader and store, in clusters too
wgmma.py      the main loop's instruction in any width; the loops themselves stand with their kernels
epilogue.py   alpha, beta, bias, activation, and how a tile leaves: TMA, registers, or slices reduced in the workspace
gemm.py, gemm_flex.py, gemm_cluster.py   dense kernels: persistent; of any width; split K in a cluster
grouped_mm_pingpong.py, grouped_mm_swap.py, grouped_mm_cluster.py   the same for packed groups
grouped_gemm.py   for arrays of pointers to large matrices: it makes descriptors on the device
"""
