#include "perseus/runtime/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "perseus/base/environment.h"
#include "perseus/base/library_symbols.h"

namespace perseus::cuda {
namespace {

void LookUpStreams(LibrarySymbols& symbols, Driver& driver) {
  symbols.Required(driver.EventCreate, "cuEventCreate");
  symbols.Required(driver.EventRecord, "cuEventRecord");
  symbols.Required(driver.EventQuery, "cuEventQuery");
  symbols.Required(driver.EventElapsedTime, "cuEventElapsedTime");
  symbols.Required(driver.EventDestroy, "cuEventDestroy_v2");
  symbols.Required(driver.GetCurrent, "cuCtxGetCurrent");
  symbols.Required(driver.StreamIsCapturing, "cuStreamIsCapturing");
  symbols.Required(driver.ExchangeCaptureMode, "cuThreadExchangeStreamCaptureMode");
}

void LookUpKernels(LibrarySymbols& symbols, Driver& driver) {
  symbols.Required(driver.Init, "cuInit");
  symbols.Required(driver.GetErrorName, "cuGetErrorName");
  symbols.Required(driver.DeviceGetCount, "cuDeviceGetCount");
  symbols.Required(driver.DeviceGet, "cuDeviceGet");
  symbols.Required(driver.DeviceGetUuid, "cuDeviceGetUuid");
  symbols.Required(driver.DeviceGetAttribute, "cuDeviceGetAttribute");
  symbols.Required(driver.PrimaryContextRetain, "cuDevicePrimaryCtxRetain");
  symbols.Required(driver.PrimaryContextRelease, "cuDevicePrimaryCtxRelease_v2");
  symbols.Required(driver.ModuleLoadData, "cuModuleLoadData");
  symbols.Required(driver.ModuleUnload, "cuModuleUnload");
  symbols.Required(driver.ModuleGetFunction, "cuModuleGetFunction");
  symbols.Required(driver.MemAlloc, "cuMemAlloc_v2");
  symbols.Required(driver.MemFree, "cuMemFree_v2");
  symbols.Required(driver.MemsetD32Async, "cuMemsetD32Async");
  symbols.Required(driver.HostAlloc, "cuMemHostAlloc");
  symbols.Required(driver.FreeHost, "cuMemFreeHost");
  symbols.Required(driver.HostGetDevicePointer, "cuMemHostGetDevicePointer_v2");
  symbols.Required(driver.StreamCreate, "cuStreamCreate");
  symbols.Required(driver.StreamDestroy, "cuStreamDestroy_v2");
  symbols.Required(driver.StreamQuery, "cuStreamQuery");
  symbols.Required(driver.Launch, "cuLaunchKernel");
  symbols.Required(driver.CopyPeer, "cuMemcpyPeerAsync");
  symbols.Required(driver.CanAccessPeer, "cuDeviceCanAccessPeer");
  symbols.Required(driver.EnablePeerAccess, "cuCtxEnablePeerAccess");
}

}  // namespace

Result<void> Driver::Check(Code code, const char* what) const {
  if (code == kSuccess) return {};
  const char* name = nullptr;
  if (GetErrorName(code, &name) != kSuccess || name == nullptr) name = "unknown error";
  return FailAs(ErrorKind::kSystem, "cannot {}: {} (CUDA error {})", what, name, code);
}

Result<void> Driver::Try(
    std::initializer_list<std::pair<const char*, std::function<Code()>>> calls) const {
  for (const auto& [what, call] : calls) PERSEUS_RETURN_IF_ERROR(Check(call(), what));
  return {};
}

Result<Driver> Load(Purpose purpose) {
  const bool is_for_kernels = purpose == Purpose::kKernels;
  // A kernel that is loaded at its first launch may wait for the kernels that run already, and ours
  // run until they are stopped.
  if (is_for_kernels) ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  const std::string name = EnvironmentOr("PERSEUS_CUDA_LIBRARY", "libcuda.so.1");
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return FailAs(ErrorKind::kSystem,
                  "no CUDA driver: {} (is one installed? PERSEUS_CUDA_LIBRARY names another)",
                  ::dlerror());
  }
  Driver driver;
  LibrarySymbols symbols(library);
  symbols.Required(driver.SetCurrent, "cuCtxSetCurrent");
  symbols.Required(driver.LaunchHostFunction, "cuLaunchHostFunc");
  (is_for_kernels ? LookUpKernels : LookUpStreams)(symbols, driver);
  if (symbols.missing() != nullptr) {
    return FailAs(ErrorKind::kSystem, "{} lacks {} (a driver of CUDA {} or later is needed)", name,
                  symbols.missing(), is_for_kernels ? "11" : "10.1");
  }
  if (is_for_kernels) PERSEUS_RETURN_IF_ERROR(driver.Check(driver.Init(0), "start CUDA"));
  return driver;
}

Result<void> Nccl::Check(int code, const char* what) const {
  if (code == kSuccess) return {};
  return FailAs(ErrorKind::kSystem,
                "NCCL cannot {}: {} (NCCL error {}; NCCL_DEBUG=WARN in the environment shows more)",
                what, GetErrorString(code), code);
}

Result<Nccl> LoadNccl() {
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

}  // namespace perseus::cuda
