#include "perseus/runtime/qualifier/cuda_api.h"

#include <dlfcn.h>

#include <cstdlib>

#include "perseus/base/environment.h"
#include "perseus/base/library_symbols.h"

namespace perseus::qualifier::cuda {
namespace {

void LookUpCuda(LibrarySymbols& symbols, Functions& f) {
  symbols.Required(f.Init, "cuInit");
  symbols.Required(f.GetErrorName, "cuGetErrorName");
  symbols.Required(f.DeviceGetCount, "cuDeviceGetCount");
  symbols.Required(f.DeviceGet, "cuDeviceGet");
  symbols.Required(f.DeviceGetUuid, "cuDeviceGetUuid");
  symbols.Required(f.DeviceGetAttribute, "cuDeviceGetAttribute");
  symbols.Required(f.PrimaryContextRetain, "cuDevicePrimaryCtxRetain");
  symbols.Required(f.PrimaryContextRelease, "cuDevicePrimaryCtxRelease_v2");
  symbols.Required(f.SetCurrent, "cuCtxSetCurrent");
  symbols.Required(f.ModuleLoadData, "cuModuleLoadData");
  symbols.Required(f.ModuleUnload, "cuModuleUnload");
  symbols.Required(f.ModuleGetFunction, "cuModuleGetFunction");
  symbols.Required(f.MemAlloc, "cuMemAlloc_v2");
  symbols.Required(f.MemFree, "cuMemFree_v2");
  symbols.Required(f.MemsetD32Async, "cuMemsetD32Async");
  symbols.Required(f.HostAlloc, "cuMemHostAlloc");
  symbols.Required(f.FreeHost, "cuMemFreeHost");
  symbols.Required(f.HostGetDevicePointer, "cuMemHostGetDevicePointer_v2");
  symbols.Required(f.StreamCreate, "cuStreamCreate");
  symbols.Required(f.StreamDestroy, "cuStreamDestroy_v2");
  symbols.Required(f.StreamQuery, "cuStreamQuery");
  symbols.Required(f.Launch, "cuLaunchKernel");
  symbols.Required(f.LaunchHostFunction, "cuLaunchHostFunc");
  symbols.Required(f.CopyPeer, "cuMemcpyPeerAsync");
  symbols.Required(f.CanAccessPeer, "cuDeviceCanAccessPeer");
  symbols.Required(f.EnablePeerAccess, "cuCtxEnablePeerAccess");
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
  const std::string name = EnvironmentOr("PERSEUS_CUDA_LIBRARY", "libcuda.so.1");
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
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

Result<void> Nccl::Check(int code, const char* what) const {
  if (code == kSuccess) return {};
  return FailAs(ErrorKind::kSystem,
                "NCCL cannot {}: {} (NCCL error {}; NCCL_DEBUG=WARN in the environment shows more)",
                what, GetErrorString(code), code);
}

Result<Nccl> OpenNccl() {
  const std::string name = EnvironmentOr("PERSEUS_NCCL_LIBRARY", "libnccl.so.2");
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return FailAs(ErrorKind::kSystem, "NCCL cannot be loaded: {} (PERSEUS_NCCL_LIBRARY names one)",
                  ::dlerror());
  }
  Nccl nccl;
  LibrarySymbols symbols(library);
  symbols.Required(nccl.CommInitAll, "ncclCommInitAll");
  symbols.Required(nccl.CommAbort, "ncclCommAbort");
  symbols.Required(nccl.GroupStart, "ncclGroupStart");
  symbols.Required(nccl.GroupEnd, "ncclGroupEnd");
  symbols.Required(nccl.AllReduce, "ncclAllReduce");
  symbols.Required(nccl.GetErrorString, "ncclGetErrorString");
  if (symbols.missing() != nullptr) {
    return FailAs(ErrorKind::kSystem, "{} lacks {}: it is not NCCL", name, symbols.missing());
  }
  return nccl;
}

}  // namespace perseus::qualifier::cuda
