"""The fast set for Hopper, in Gluon. A kernel is put together from a scheduler, a loader, a main loop and an epilogue.

scheduler   scheduler.py: tiles of one product, and slices of their K; raster.py: in which order blocks take them;
            groups.py: where packed groups begin and end, and the loading warp that looks it up; tickets.py: tiles taken
            as blocks come free; choices.py: one token's experts, in a warp's lanes; tile_queue.py: how a warp hands its
            tiles on
loader      loader.py: the stages of shared memory that TMA fills; loader_assembly.py: what it says in assembly;
            gather.py: where threads fill them, with rows by index; block_scales.py, scale_ring.py: scales of blocks,
            beside the operands; tails.py, edges.py: what is another group's is cleared, by warps of its own or by those
            that multiply
mainloop    mainloop.py: wgmma of any width, over an accumulator in parts; promote.py: sums of 8-bit products kept in
            float32; promote_blocks.py: with scales of blocks, where two warpgroups share a tile; paired_sums.py,
            place.py: in which registers sums stand, and which stage a step has
epilogue    epilogue.py: alpha, beta, bias, activation, and how a tile leaves: by TMA, or from registers;
            output_assembly.py: what it says in assembly; split_output.py: in slices that reduce in the workspace;
            scales.py: what 8-bit operands were scaled by, and a D of 8 bits rounded
team        team.py: warpgroups that multiply run one code, and do each by itself what a partition does else;
            team_layouts.py: what a tensor is there
kernels     gemm.py: dense, persistent, cooperative or pingpong; gemm_cluster.py: few tiles, whose K a cluster shares;
            gemm_stream.py: whose K all blocks share; grouped_mm_pingpong.py, grouped_mm_swap.py, grouped_mm_cluster.py:
            packed groups, grouped_mm_columns.py: whose ends cut columns, and grouped_mm_whole.py: in tiles that no
            group's end cuts; grouped_mm_scaled.py, grouped_mm_scaled_whole.py: the same in 8 bits;
            grouped_gemm.py: arrays of pointers to large matrices, whose descriptors it makes on the device; moe_mm.py:
            layers of experts, and moe_mm_scaled.py, _few.py, _one.py: in 8 bits, gated and cast, of large groups, of
            few rows and of one token
casts       cast_transpose.py: to 8 bits, by rows and transposed, each with scales of its own
"""
