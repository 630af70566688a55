/* choice.h: the answer: which row runs a problem, and what before it. */
#ifndef LIBGEMM_SELECT_CHOICE_H
#define LIBGEMM_SELECT_CHOICE_H

#include "select/problem.h"

struct choice {
  const struct row *row;    /* NULL where nothing needs to run */
  const struct row *copier; /* NULL, or what copies A or B to aligned rows first */
  double copy_us;           /* about as long as that takes */
  struct problem seen;      /* the problem as the row sees it: A or B copied to aligned rows, or a batch as groups */
};

/* The best row for a problem that states its GPU (state_gpu). */
libgemm_status choose(const struct problem *problem, const struct target *target, struct choice *choice);

/* Several dense products, which are what groups of one size without ends are too. Kernels count those in 32 bits. */
bool is_batch(const struct problem *problem);

/* What the rows for such groups see of them. */
struct problem as_groups(const struct problem *problem);

/* The same on this GPU, which the problem then states. */
static inline libgemm_status choose_on(struct problem *problem, const struct gpu *gpu, struct choice *choice) {
  state_gpu(problem, gpu);
  return choose(problem, gpu->target, choice);
}

/* Choose, and say it in words; of no problem (NULL), that nothing runs. */
libgemm_status explain_on(struct problem *problem, const struct gpu *gpu, libgemm_choice *choice);

#endif
