// check.h: for programs whose calls must come out as said: the first that does not ends the program.
#ifndef TESTS_CHECK_H_
#define TESTS_CHECK_H_

#include <libgemm.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                        \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, libgemm_last_error()); \
      exit(1);                                                                                  \
    }                                                                                           \
  } while (0)

#endif
