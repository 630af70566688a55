// A recording stand-in for libcuda.so.1: checks and logs what a program asks of the CUDA driver; executes no kernel.
//
// Device memory is host memory, one primary context exists per device, and a launch copies its parameters by the
// cubin's own table into the log. Environment, read at the first call:
//   FAKECUDA_LOG=path         append one JSON object per call
//   FAKECUDA_FAIL=f:n:code,.. the n-th call of f (from 1; * for each) returns code and does nothing
//   FAKECUDA_VERSION=13000    FAKECUDA_DEVICES=2    FAKECUDA_SM=90 (or one per device: 90,80)    FAKECUDA_SMS=132
//   FAKECUDA_NO_DEVICE=1      cuInit finds no device
//   FAKECUDA_CAPTURING=1      every stream is capturing
// In-process tests use the fakecuda_* functions at the end of this file; C ones also those of fakecuda.h.
//
// Build: gcc -std=c11 -D_GNU_SOURCE -fPIC -shared -Wl,-soname,libcuda.so.1 -o libcuda.so.1 fakecuda/*.c -lpthread
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

enum { LINE_BYTES = 160 * 1024, MAX_RULES = 64 };  // parameters are at most 32764 bytes, written as hexadecimal

typedef struct {
  CallId call;
  uint64_t nth;   // 0: always
  uint64_t seen;  // calls since the rule was made, so a test counts from where it set the rule
  int code;
} Rule;

Config config = {.log = -1};
struct fakecuda_watcher watcher;
int initialized, forked;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t counts[CALLS];
static Rule rules[MAX_RULES];
static int rule_count;
static char line[LINE_BYTES], last_launch[LINE_BYTES];
static size_t line_length;
static int keep_line;

#define FAKECUDA_NAME(function) #function,
static const char *const names[] = {FAKECUDA_CALLS(FAKECUDA_NAME)};

// A wrong test must not pass for want of the failure it meant to provoke.
static _Noreturn void die(const char *what, const char *value) {
  fprintf(stderr, "fakecuda: %s: %s\n", what, value);
  abort();
}

static int find_call(const char *name) {
  for (int i = 0; i < CALLS; i++)
    if (strcmp(names[i], name) == 0) return i;
  return -1;
}

static void set_rules(const char *spec) {
  rule_count = 0;
  while (spec && *spec) {
    char name[64], nth[24];
    int code, length = 0;
    if (sscanf(spec, "%63[^:,]:%23[^:,]:%d%n", name, nth, &code, &length) != 3 || !length) die("bad failure", spec);
    if (spec[length] != ',' && spec[length] != '\0') die("bad failure", spec);
    char *end = nth;
    Rule rule = {.code = code, .nth = strcmp(nth, "*") == 0 ? 0 : strtoull(nth, &end, 10)};
    if (strcmp(nth, "*") != 0 && (*end != '\0' || rule.nth == 0)) die("bad count in failure", spec);
    int call = find_call(name);
    if (call < 0) die("failure of an unknown function", name);
    if (rule_count == MAX_RULES) die("too many failures", spec);
    rule.call = (CallId)call;
    rules[rule_count++] = rule;
    spec += length + (spec[length] == ',');
  }
}

static int number(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text && *text ? atoi(text) : otherwise;
}

static void before_fork(void) { pthread_mutex_lock(&mutex); }
static void after_fork_parent(void) { pthread_mutex_unlock(&mutex); }
static void after_fork_child(void) {
  forked |= initialized;
  initialized = 0;
  pthread_mutex_unlock(&mutex);
}

static void configure(void) {
  config.version = number("FAKECUDA_VERSION", 13000);
  config.devices = number("FAKECUDA_DEVICES", 2);
  config.multiprocessors = number("FAKECUDA_SMS", 132);
  config.no_device = number("FAKECUDA_NO_DEVICE", 0);
  config.capturing = number("FAKECUDA_CAPTURING", 0);
  if (config.devices < 0 || config.devices > MAX_DEVICES) die("bad FAKECUDA_DEVICES", getenv("FAKECUDA_DEVICES"));

  // The last entry of a short list stands for the remaining devices.
  const char *sm = getenv("FAKECUDA_SM");
  for (int i = 0; i < MAX_DEVICES; i++) {
    config.sm[i] = sm && *sm ? atoi(sm) : i ? config.sm[i - 1] : 90;
    if (sm) sm = strchr(sm, ',');
    if (sm) sm++;
  }

  set_rules(getenv("FAKECUDA_FAIL"));
  const char *path = getenv("FAKECUDA_LOG");
  if (path && *path) {
    config.log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (config.log < 0) die("cannot open FAKECUDA_LOG", path);
  }
  pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

void lock(void) {
  pthread_once(&once, configure);
  pthread_mutex_lock(&mutex);
}

static void append(const char *format, va_list arguments) {
  size_t room = LINE_BYTES - line_length;
  int length = vsnprintf(line + line_length, room, format, arguments);
  if (length < 0 || (size_t)length >= room) die("log line too long", names[0]);
  for (char *c = line + line_length; *c; c++)
    if (*c == '\'') *c = '"';
  line_length += (size_t)length;
}

// Whoever watches launches, and keeps no log, pays for no text.
static int is_quiet(void) { return watcher.launch && config.log < 0; }

void note(const char *format, ...) {
  if (is_quiet()) return;
  va_list arguments;
  va_start(arguments, format);
  append(format, arguments);
  va_end(arguments);
}

void note_hex(const void *bytes, size_t size) {
  if (is_quiet()) return;
  if (size >= (LINE_BYTES - line_length) / 2) die("log line too long", names[0]);
  for (size_t i = 0; i < size; i++) {
    unsigned char byte = ((const unsigned char *)bytes)[i];
    line[line_length++] = "0123456789abcdef"[byte >> 4];
    line[line_length++] = "0123456789abcdef"[byte & 15];
  }
}

const char *safe(const char *text) {
  static char copy[256];
  snprintf(copy, sizeof(copy), "%s", text ? text : "");
  for (char *c = copy; *c; c++)
    if (*c < ' ' || *c == '"' || *c == '\'' || *c == '\\' || *c == 127) *c = '?';
  return copy;
}

static CUresult injected(CallId call) {
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; i < rule_count; i++) {
    if (rules[i].call != call) continue;
    rules[i].seen++;
    if (rules[i].nth == 0 || rules[i].nth == rules[i].seen) result = (CUresult)rules[i].code;
  }
  return result;
}

CUresult begin(CallId call, int needs, const char *format, ...) {
  counts[call]++;
  line_length = 0;
  keep_line = 0;
  note("{'call':'%s'", names[call]);
  if (format && !is_quiet()) {
    va_list arguments;
    va_start(arguments, format);
    append(format, arguments);
    va_end(arguments);
  }

  CUresult result = injected(call);
  if (result != CUDA_SUCCESS) return result;
  if ((needs & NEED_INIT) && !initialized) return CUDA_ERROR_NOT_INITIALIZED;
  CUcontext context;
  if ((needs & NEED_CONTEXT) == NEED_CONTEXT && (result = current_context(&context)) != CUDA_SUCCESS) return result;
  if ((needs & NO_CAPTURE) && config.capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return CUDA_SUCCESS;
}

void keep_launch(void) { keep_line = 1; }

CUresult done(CUresult result) {
  note(",'result':%d}", result);
  if (keep_line) memcpy(last_launch, line, line_length + 1);
  line[line_length] = '\n';
  // One write per line keeps the lines of several processes apart.
  if (config.log >= 0 && write(config.log, line, line_length + 1) != (ssize_t)line_length + 1)
    die("cannot write FAKECUDA_LOG", names[0]);
  pthread_mutex_unlock(&mutex);
  return result;
}

// Replaces the injected failures, counting calls from now. NULL: none, and all counts restart.
void fakecuda_fail(const char *spec) {
  lock();
  set_rules(spec);
  if (!spec) memset(counts, 0, sizeof(counts));
  pthread_mutex_unlock(&mutex);
}

// Calls of a function so far; UINT64_MAX for a name that is not an entry point.
uint64_t fakecuda_count(const char *function) {
  lock();
  int call = find_call(function);
  uint64_t count = call < 0 ? UINT64_MAX : counts[call];
  pthread_mutex_unlock(&mutex);
  return count;
}

void fakecuda_set_capturing(int on) {
  lock();
  config.capturing = on;
  pthread_mutex_unlock(&mutex);
}

// The log line of the last launch that succeeded, cut to `bytes`. Returns its full length, 0 when there was none.
int fakecuda_last_launch(char *json, size_t bytes) {
  lock();
  int length = snprintf(json, bytes, "%s", last_launch);
  pthread_mutex_unlock(&mutex);
  return length;
}

// Forgets counts and the last launch; failures, memory and handles stay.
void fakecuda_reset(void) {
  lock();
  memset(counts, 0, sizeof(counts));
  last_launch[0] = '\0';
  pthread_mutex_unlock(&mutex);
}

void fakecuda_watch(const struct fakecuda_watcher *wanted) {
  lock();
  watcher = *wanted;
  pthread_mutex_unlock(&mutex);
}
