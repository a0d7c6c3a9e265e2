#include "perseus/runtime/client/cuda_driver.h"

#include <dlfcn.h>

#include <cstdlib>

namespace perseus::client {
namespace {

// False if the library lacks it.
template <typename Function>
bool LookUp(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<CudaDriver> LoadCudaDriver() {
  const char* chosen = std::getenv("PERSEUS_CUDA_LIBRARY");
  const char* name = chosen != nullptr && *chosen != '\0' ? chosen : "libcuda.so.1";
  void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return FailAs(ErrorKind::kSystem,
                  "no CUDA driver: {} (is one installed? PERSEUS_CUDA_LIBRARY "
                  "names another)",
                  ::dlerror());
  }
  CudaDriver driver;
  const bool has_all =
      LookUp(library, "cuEventCreate", driver.event_create) &&
      LookUp(library, "cuEventRecord", driver.event_record) &&
      LookUp(library, "cuEventQuery", driver.event_query) &&
      LookUp(library, "cuEventElapsedTime", driver.event_elapsed_time) &&
      LookUp(library, "cuEventDestroy_v2", driver.event_destroy) &&
      LookUp(library, "cuLaunchHostFunc", driver.launch_host_function) &&
      LookUp(library, "cuCtxGetCurrent", driver.context_get_current) &&
      LookUp(library, "cuCtxSetCurrent", driver.context_set_current) &&
      LookUp(library, "cuStreamIsCapturing", driver.stream_is_capturing) &&
      LookUp(library, "cuThreadExchangeStreamCaptureMode", driver.exchange_capture_mode);
  if (!has_all) {
    return FailAs(ErrorKind::kSystem,
                  "{} lacks an entry point: {} (a driver of CUDA 10.1 or later is "
                  "needed)",
                  name, ::dlerror());
  }
  return driver;
}

}  // namespace perseus::client
