// Part of the fake CUDA driver: reads cubins, and answers for their kernels.
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { MACHINE_CUDA = 190, INFO_REQNTID = 0x10, INFO_KPARAM = 0x17, FORMAT_SIZED = 4 };

// All that is needed is read at load time, so the image itself is not kept. Unloaded libraries stay in the list without
// their kernels' tables, so that a stale handle is recognised.
struct Library {
  struct Library *next;
  int live, sm, exact;  // exact: runs on that compute capability alone
  size_t bytes;
  size_t kernels;
  Kernel *kernel;
};

static struct Library *libraries;

// Reads the kernel's records: u8 format, u8 attribute, u16 size or value, then `size` bytes for a sized record.
static int read_info(Kernel *kernel, const unsigned char *info, size_t bytes) {
  for (size_t at = 0; at + 4 <= bytes;) {
    unsigned format = info[at], attribute = info[at + 1];
    size_t size = format == FORMAT_SIZED ? (size_t)info[at + 2] | (size_t)info[at + 3] << 8 : 0;
    const unsigned char *payload = info + at + 4;
    if (size > bytes - at - 4) return 0;
    at += 4 + size;
    if (attribute == INFO_REQNTID && size >= 12) memcpy(kernel->block, payload, 12);
    if (attribute != INFO_KPARAM || size < 12) continue;

    uint16_t ordinal, offset;
    uint32_t flags;
    memcpy(&ordinal, payload + 4, 2);
    memcpy(&offset, payload + 6, 2);
    memcpy(&flags, payload + 8, 4);
    if (ordinal >= kernel->parameters) {  // ordinals come in descending order, so this happens once
      Parameter *larger = realloc(kernel->parameter, (ordinal + 1u) * sizeof(*larger));
      if (!larger) return 0;
      memset(larger + kernel->parameters, 0, (ordinal + 1u - kernel->parameters) * sizeof(*larger));
      kernel->parameter = larger;
      kernel->parameters = ordinal + 1u;
    }
    kernel->parameter[ordinal] = (Parameter){offset, flags >> 18};
  }
  return 1;
}

static Elf64_Shdr read_section(const char *image, const Elf64_Ehdr *header, size_t index) {
  Elf64_Shdr section;
  memcpy(&section, image + header->e_shoff + index * sizeof(section), sizeof(section));
  return section;
}

static void clear(struct Library *library) {
  for (size_t i = 0; i < library->kernels; i++) {
    free(library->kernel[i].name);
    free(library->kernel[i].parameter);
  }
  library->live = 0;
}

// A kernel is what has a section .nv.info.<kernel>. Returns 0 for an image that is no cubin.
static int parse(struct Library *library, const char *image) {
  Elf64_Ehdr header;
  if (memcmp(image, ELFMAG, SELFMAG) != 0) return 0;  // alone first: other images may be shorter than the header
  memcpy(&header, image, sizeof(header));
  if (header.e_machine != MACHINE_CUDA || header.e_ident[EI_CLASS] != ELFCLASS64) return 0;
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum) return 0;
  // As ptxas 12.9 and 13.4 write it where code uses what architectures with suffix a alone have.
  int old = header.e_ident[EI_ABIVERSION] < 8;
  library->exact = old ? header.e_flags >> 11 & 1 : (header.e_flags >> 27 | header.e_flags >> 3) & 1;
  library->sm = (header.e_ident[EI_ABIVERSION] < 8 ? header.e_flags : header.e_flags >> 8) & 0xff;

  // The caller gives no size; one of the two tables ends the file.
  library->bytes = header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr);
  size_t end = header.e_phoff + (size_t)header.e_phnum * header.e_phentsize;
  if (header.e_phnum && end > library->bytes) library->bytes = end;
  library->kernel = calloc(header.e_shnum, sizeof(Kernel));
  if (!library->kernel) return 0;
  Elf64_Shdr names = read_section(image, &header, header.e_shstrndx);
  if (names.sh_offset > library->bytes || names.sh_size > library->bytes - names.sh_offset) return 0;
  if (names.sh_size == 0 || image[names.sh_offset + names.sh_size - 1] != '\0') return 0;

  static const char prefix[] = ".nv.info.";
  for (size_t i = 0; i < header.e_shnum; i++) {
    Elf64_Shdr section = read_section(image, &header, i);
    if (section.sh_name >= names.sh_size) return 0;
    const char *name = image + names.sh_offset + section.sh_name;
    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0) continue;
    if (section.sh_offset > library->bytes || section.sh_size > library->bytes - section.sh_offset) return 0;

    Kernel *kernel = &library->kernel[library->kernels++];
    kernel->library = library;
    kernel->name = strdup(name + sizeof(prefix) - 1);
    if (!kernel->name) return 0;
    for (int d = 0; d < MAX_DEVICES; d++) kernel->functions[d] = (Function){kernel, d, DEFAULT_SHARED};
    if (!read_info(kernel, (const unsigned char *)image + section.sh_offset, section.sh_size)) return 0;
  }
  return 1;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, const int *jit_options, void **jit_values,
                           unsigned jit_count, const int *options, void **values, unsigned count) {
  CALL(cuLibraryLoadData, NEED_INIT | NO_CAPTURE, ",'jit_options':%u,'options':%u", jit_count, count);
  (void)jit_options, (void)jit_values, (void)options, (void)values;
  if (!library || !code) return done(CUDA_ERROR_INVALID_VALUE);
  struct Library *new = calloc(1, sizeof(*new));
  if (!new) return done(CUDA_ERROR_OUT_OF_MEMORY);
  if (!parse(new, code)) {
    clear(new);
    free(new->kernel);
    free(new);
    return done(CUDA_ERROR_INVALID_IMAGE);
  }
  new->live = 1;
  new->next = libraries;
  *library = libraries = new;
  note(",'bytes':%zu,'sm':%d,'kernels':%zu", new->bytes, new->sm, new->kernels);
  return done(CUDA_SUCCESS);
}

static int is_library(CUlibrary library) {
  for (struct Library *l = libraries; l; l = l->next)
    if (l == library) return l->live;
  return 0;
}

CUresult cuLibraryUnload(CUlibrary library) {
  CALL(cuLibraryUnload, NEED_INIT, NULL);
  if (!is_library(library)) return done(CUDA_ERROR_INVALID_HANDLE);
  clear(library);
  return done(CUDA_SUCCESS);
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
  CALL(cuLibraryGetKernel, NEED_INIT, ",'kernel':'%s'", safe(name));
  if (!kernel || !name) return done(CUDA_ERROR_INVALID_VALUE);
  if (!is_library(library)) return done(CUDA_ERROR_INVALID_HANDLE);
  for (size_t i = 0; i < library->kernels; i++) {
    if (strcmp(library->kernel[i].name, name) != 0) continue;
    *kernel = &library->kernel[i];
    return done(CUDA_SUCCESS);
  }
  return done(CUDA_ERROR_NOT_FOUND);
}

CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary library) {
  CALL(cuLibraryGetKernelCount, NEED_INIT, NULL);
  if (!count) return done(CUDA_ERROR_INVALID_VALUE);
  if (!is_library(library)) return done(CUDA_ERROR_INVALID_HANDLE);
  *count = (unsigned)library->kernels;
  return done(CUDA_SUCCESS);
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned count, CUlibrary library) {
  CALL(cuLibraryEnumerateKernels, NEED_INIT, ",'count':%u", count);
  if (!kernels || !count) return done(CUDA_ERROR_INVALID_VALUE);
  if (!is_library(library)) return done(CUDA_ERROR_INVALID_HANDLE);
  for (size_t i = 0; i < count && i < library->kernels; i++) kernels[i] = &library->kernel[i];
  return done(CUDA_SUCCESS);
}

static int is_kernel(const Kernel *kernel) {
  for (struct Library *l = libraries; l; l = l->next)
    for (size_t i = 0; l->live && i < l->kernels; i++)
      if (&l->kernel[i] == kernel) return 1;
  return 0;
}

CUresult find_function(CUfunction handle, Function **function) {
  for (struct Library *l = libraries; l; l = l->next) {
    for (size_t i = 0; l->live && i < l->kernels; i++) {
      Kernel *kernel = &l->kernel[i];
      if (handle == kernel) {
        CUcontext context;
        CUresult result = current_context(&context);
        if (result == CUDA_SUCCESS) *function = &kernel->functions[context_device(context)];
        return result;
      }
      const uint64_t *place = handle, *first = &kernel->handles[0][0];
      if (place < first || place >= first + MAX_DEVICES * CONTEXTS) continue;
      int device = (int)((place - first) / CONTEXTS);  // of a context made anew a function is another one
      if (*place != context_id(device)) return CUDA_ERROR_INVALID_HANDLE;
      *function = &kernel->functions[device];
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult check_binary(const Kernel *kernel, CUdevice device) {
  int binary = kernel->library->sm, sm = config.sm[device];
  int integrated = binary == 87 || binary == 110 || sm == 87 || sm == 110;
  int later = binary / 10 == sm / 10 && binary < sm && !kernel->library->exact && !integrated;
  int runs = binary == sm || later;
  return runs ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  CALL(cuKernelGetFunction, NEED_CONTEXT, NULL);
  Function *found;
  if (!function) return done(CUDA_ERROR_INVALID_VALUE);
  CUresult result = is_kernel(kernel) ? find_function(kernel, &found) : CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS) note(",'kernel':'%s','device':%d", safe(kernel->name), found->device);
  if (result == CUDA_SUCCESS) result = check_binary(kernel, found->device);
  if (result != CUDA_SUCCESS) return done(result);
  uint64_t id = context_id(found->device), *handle = &found->kernel->handles[found->device][id % CONTEXTS];
  *handle = id;
  *function = handle;
  return done(CUDA_SUCCESS);
}

enum { MAX_THREADS = 0, BINARY_VERSION = 6, MAX_DYNAMIC_SHARED = 8 };

static CUresult set_attribute(Function *function, int attribute, int value) {
  CUresult result = check_binary(function->kernel, function->device);
  if (result != CUDA_SUCCESS || attribute != MAX_DYNAMIC_SHARED) return result;
  if (value < 0 || value > max_shared(function->device)) return CUDA_ERROR_INVALID_VALUE;
  function->shared_limit = value;
  return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, const Function *function, int attribute) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t *block = function->kernel->block;
  switch (attribute) {
    case MAX_THREADS: *value = block[0] ? (int)(block[0] * block[1] * block[2]) : 1024; break;
    case BINARY_VERSION: *value = function->kernel->library->sm; break;
    case MAX_DYNAMIC_SHARED: *value = function->shared_limit; break;
    default: *value = 0; break;
  }
  return check_binary(function->kernel, function->device);
}

CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device) {
  CALL(cuKernelSetAttribute, NEED_INIT, ",'attribute':%d,'value':%d,'device':%d", attribute, value, device);
  if (!is_kernel(kernel)) return done(CUDA_ERROR_INVALID_HANDLE);
  if (!is_device(device)) return done(CUDA_ERROR_INVALID_DEVICE);
  note(",'kernel':'%s'", safe(kernel->name));
  return done(set_attribute(&kernel->functions[device], attribute, value));
}

CUresult cuKernelGetAttribute(int *value, int attribute, CUkernel kernel, CUdevice device) {
  CALL(cuKernelGetAttribute, NEED_INIT, ",'attribute':%d,'device':%d", attribute, device);
  if (!is_kernel(kernel)) return done(CUDA_ERROR_INVALID_HANDLE);
  if (!is_device(device)) return done(CUDA_ERROR_INVALID_DEVICE);
  return done(get_attribute(value, &kernel->functions[device], attribute));
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size) {
  CALL(cuKernelGetParamInfo, NEED_INIT, ",'index':%zu", index);
  if (!is_kernel(kernel)) return done(CUDA_ERROR_INVALID_HANDLE);
  if (!offset || index >= kernel->parameters) return done(CUDA_ERROR_INVALID_VALUE);
  *offset = kernel->parameter[index].offset;
  if (size) *size = kernel->parameter[index].size;
  return done(CUDA_SUCCESS);
}

CUresult cuFuncSetAttribute(CUfunction handle, int attribute, int value) {
  CALL(cuFuncSetAttribute, NEED_INIT, ",'attribute':%d,'value':%d", attribute, value);
  Function *function;
  CUresult result = find_function(handle, &function);
  if (result != CUDA_SUCCESS) return done(result);
  note(",'kernel':'%s','device':%d", safe(function->kernel->name), function->device);
  return done(set_attribute(function, attribute, value));
}

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction handle) {
  CALL(cuFuncGetAttribute, NEED_INIT, ",'attribute':%d", attribute);
  Function *function;
  CUresult result = find_function(handle, &function);
  return done(result == CUDA_SUCCESS ? get_attribute(value, function, attribute) : result);
}

CUresult cuFuncLoad(CUfunction handle) {
  CALL(cuFuncLoad, NEED_INIT, NULL);
  Function *function;
  CUresult result = find_function(handle, &function);
  return done(result == CUDA_SUCCESS ? check_binary(function->kernel, function->device) : result);
}
