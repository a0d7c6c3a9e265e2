#include "perseus/runtime/qualifier/cuda_api.h"

#include <dlfcn.h>

#include <cstdlib>

namespace perseus::qualifier::cuda {
namespace {

const char* ChosenLibrary(const char* variable, const char* usual) {
  const char* const chosen = std::getenv(variable);
  return chosen != nullptr && *chosen != '\0' ? chosen : usual;
}

// Looks up symbols, and keeps the name of the first one that is missing.
class LibrarySymbols {
 public:
  explicit LibrarySymbols(void* library) : library_(library) {}
  template <typename Pointer>
  void LookUp(Pointer& function, const char* name) {
    function = reinterpret_cast<Pointer>(::dlsym(library_, name));
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  const char* missing() const { return missing_; }

 private:
  void* library_;
  const char* missing_ = nullptr;
};

void LookUpCuda(LibrarySymbols& symbols, Functions& f) {
  symbols.LookUp(f.Init, "cuInit");
  symbols.LookUp(f.GetErrorName, "cuGetErrorName");
  symbols.LookUp(f.DeviceGetCount, "cuDeviceGetCount");
  symbols.LookUp(f.DeviceGet, "cuDeviceGet");
  symbols.LookUp(f.DeviceGetUuid, "cuDeviceGetUuid");
  symbols.LookUp(f.DeviceGetAttribute, "cuDeviceGetAttribute");
  symbols.LookUp(f.PrimaryContextRetain, "cuDevicePrimaryCtxRetain");
  symbols.LookUp(f.PrimaryContextRelease, "cuDevicePrimaryCtxRelease_v2");
  symbols.LookUp(f.SetCurrent, "cuCtxSetCurrent");
  symbols.LookUp(f.ModuleLoadData, "cuModuleLoadData");
  symbols.LookUp(f.ModuleUnload, "cuModuleUnload");
  symbols.LookUp(f.ModuleGetFunction, "cuModuleGetFunction");
  symbols.LookUp(f.MemAlloc, "cuMemAlloc_v2");
  symbols.LookUp(f.MemFree, "cuMemFree_v2");
  symbols.LookUp(f.MemsetD32, "cuMemsetD32_v2");
  symbols.LookUp(f.HostAlloc, "cuMemHostAlloc");
  symbols.LookUp(f.FreeHost, "cuMemFreeHost");
  symbols.LookUp(f.HostGetDevicePointer, "cuMemHostGetDevicePointer_v2");
  symbols.LookUp(f.StreamCreate, "cuStreamCreate");
  symbols.LookUp(f.StreamDestroy, "cuStreamDestroy_v2");
  symbols.LookUp(f.StreamQuery, "cuStreamQuery");
  symbols.LookUp(f.Launch, "cuLaunchKernel");
  symbols.LookUp(f.LaunchHostFunction, "cuLaunchHostFunc");
  symbols.LookUp(f.CopyPeer, "cuMemcpyPeerAsync");
}

}  // namespace

Result<void> Api::Check(int code, const char* what) const {
  if (code == kSuccess) return {};
  const char* name = nullptr;
  if (f.GetErrorName(code, &name) != kSuccess || name == nullptr) name = "unknown error";
  return FailAs(ErrorKind::kSystem, "cannot {}: {} (CUDA error {})", what, name, code);
}

Result<Api> Open() {
  // A kernel that is loaded at its first launch may wait for the kernels that run already, and ours
  // run until they are stopped.
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  const char* const name = ChosenLibrary("PERSEUS_CUDA_LIBRARY", "libcuda.so.1");
  void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return FailAs(ErrorKind::kSystem, "no CUDA driver: {}", ::dlerror());
  }
  Api api;
  api.library = std::shared_ptr<void>(library, [](void* /*stays loaded*/) {});
  LibrarySymbols symbols(library);
  LookUpCuda(symbols, api.f);
  if (symbols.missing() != nullptr) {
    return FailAs(ErrorKind::kSystem, "{} lacks {} (a driver of CUDA 11 or later is needed)", name,
                  symbols.missing());
  }
  PERSEUS_RETURN_IF_ERROR(api.Check(api.f.Init(0), "start CUDA"));
  return api;
}

Result<Nccl> OpenNccl() {
  const char* const name = ChosenLibrary("PERSEUS_NCCL_LIBRARY", "libnccl.so.2");
  void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return FailAs(ErrorKind::kSystem, "NCCL cannot be loaded: {} (PERSEUS_NCCL_LIBRARY names one)",
                  ::dlerror());
  }
  Nccl nccl;
  LibrarySymbols symbols(library);
  symbols.LookUp(nccl.CommInitAll, "ncclCommInitAll");
  symbols.LookUp(nccl.CommAbort, "ncclCommAbort");
  symbols.LookUp(nccl.GroupStart, "ncclGroupStart");
  symbols.LookUp(nccl.GroupEnd, "ncclGroupEnd");
  symbols.LookUp(nccl.AllReduce, "ncclAllReduce");
  if (symbols.missing() != nullptr) {
    return FailAs(ErrorKind::kSystem, "{} lacks {}: it is not NCCL", name, symbols.missing());
  }
  return nccl;
}

}  // namespace perseus::qualifier::cuda
