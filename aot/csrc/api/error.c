/* error.c: status names, their meaning, and this thread's last error sentence. Knows nothing of GPUs. */
#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

static _Thread_local char last_error[1024];

libgemm_status fail(libgemm_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last_error, sizeof last_error, format, arguments);
  va_end(arguments);
  return status;
}

const char *libgemm_last_error(void) { return last_error; }

static const struct {
  const char *name, *text;
} statuses[] = {
    [LIBGEMM_OK] = {"LIBGEMM_OK", "success"},
    [LIBGEMM_INVALID_ARGUMENT] = {"LIBGEMM_INVALID_ARGUMENT", "an argument breaks its contract"},
    [LIBGEMM_UNSUPPORTED] = {"LIBGEMM_UNSUPPORTED", "no kernel of this library serves this request"},
    [LIBGEMM_NO_DRIVER] = {"LIBGEMM_NO_DRIVER", "the NVIDIA driver or a GPU is missing"},
    [LIBGEMM_DRIVER_TOO_OLD] = {"LIBGEMM_DRIVER_TOO_OLD", "the NVIDIA driver is older than the kernels need"},
    [LIBGEMM_UNSUPPORTED_DEVICE] = {"LIBGEMM_UNSUPPORTED_DEVICE", "this library has no kernels for the GPU"},
    [LIBGEMM_DRIVER_ERROR] = {"LIBGEMM_DRIVER_ERROR", "a call of the NVIDIA driver failed"},
    [LIBGEMM_OUT_OF_MEMORY] = {"LIBGEMM_OUT_OF_MEMORY", "host or device memory ran out"},
};
#define STATUS_COUNT ((int32_t)(sizeof statuses / sizeof *statuses))

const char *libgemm_status_name(int32_t status) {
  return status >= 0 && status < STATUS_COUNT ? statuses[status].name : "unknown status";
}

const char *libgemm_status_text(int32_t status) {
  return status >= 0 && status < STATUS_COUNT ? statuses[status].text : "not a status of this library";
}
