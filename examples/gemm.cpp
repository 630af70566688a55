// gemm.cpp: the product of gemm.c in C++17, with memory that frees itself and errors as exceptions. Exits with 1 on
// any.
//
//   c++ -std=c++17 examples/gemm.cpp -I dist/include -L dist/lib -lgemm -ldl -Wl,-rpath,$PWD/dist/lib -o gemm
#include <dlfcn.h>
#include <libgemm.h>

#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void check(libgemm_status status) {
  if (status != LIBGEMM_OK) throw Error(std::string(libgemm_status_name(status)) + ": " + libgemm_last_error());
}

// Calls a function of the CUDA driver by its name there, and returns its CUresult.
template <typename... Arguments>
int call_driver(const char *name, Arguments... arguments) {
  static void *const cuda = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<int (*)(Arguments...)>(dlsym(cuda, name))(arguments...);
}

template <typename... Arguments>
void driver(const char *name, Arguments... arguments) {
  if (const int error = call_driver(name, arguments...)) throw Error(name + (" failed: " + std::to_string(error)));
}

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) { driver("cuMemAlloc_v2", &memory_, bytes); }
  explicit DeviceMemory(const std::vector<float> &host) : DeviceMemory(host.size() * sizeof(float)) {
    driver("cuMemcpyHtoD_v2", memory_, static_cast<const void *>(host.data()), host.size() * sizeof(float));
  }
  DeviceMemory(const DeviceMemory &) = delete;
  DeviceMemory &operator=(const DeviceMemory &) = delete;
  ~DeviceMemory() { call_driver("cuMemFree_v2", memory_); }

  void copy_to(std::vector<float> &host) const {  // waits for what is queued on the default stream
    driver("cuMemcpyDtoH_v2", static_cast<void *>(host.data()), memory_, host.size() * sizeof(float));
  }
  void *get() const { return memory_; }

 private:
  void *memory_ = nullptr;
};

void multiply(int m, int n, int k) {
  std::vector<float> a(m * k), b(k * n), d(m * n);
  for (int i = 0; i < m * k; i++) a[i] = i % 5;  // small whole numbers, which tf32 holds exactly
  for (int i = 0; i < k * n; i++) b[i] = i % 7;

  libgemm_gemm_args args;
  libgemm_gemm_args_init(&args, sizeof args);
  args.m = m, args.n = n, args.k = k;
  args.lda = k, args.ldb = n, args.ldd = n;
  args.a_type = args.d_type = LIBGEMM_F32, args.precision = LIBGEMM_TF32;
  check(libgemm_gemm_workspace(&args, &args.workspace_bytes));  // the first call that needs a driver

  void *context = nullptr;
  driver("cuDevicePrimaryCtxRetain", &context, 0);
  driver("cuCtxSetCurrent", context);
  const DeviceMemory gpu_a(a), gpu_b(b), gpu_d(d), workspace(args.workspace_bytes + 16);  // 0 bytes cannot be had
  args.a = gpu_a.get(), args.b = gpu_b.get(), args.d = gpu_d.get(), args.workspace = workspace.get();
  check(libgemm_gemm(&args));
  gpu_d.copy_to(d);

  for (int i = 0; i < m * n; i++) {
    float sum = 0;
    for (int j = 0; j < k; j++) sum += a[i / n * k + j] * b[j * n + i % n];
    if (d[i] != sum) throw Error("element " + std::to_string(i) + " of D is wrong: " + std::to_string(d[i]));
  }
}

int main() try {
  multiply(256, 192, 128);
  std::cout << "every number is right\n";
} catch (const Error &error) {
  std::cout << error.what() << '\n';
  return 1;
}
