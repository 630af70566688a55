// pointers.h: between pointers.c, which makes calls over arrays of pointers, and check_pointers.c, which judges them.
#ifndef FUZZ_POINTERS_H_
#define FUZZ_POINTERS_H_

#include "fuzz.h"

int pointers_gpu(const libgemm_grouped_gemm_args *a);  // that must run the call; -1: none can be told
void check_pointers_launch(const libgemm_grouped_gemm_args *a);

#endif
