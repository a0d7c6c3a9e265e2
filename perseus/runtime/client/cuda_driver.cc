#include "perseus/runtime/client/cuda_driver.h"

#include <dlfcn.h>

#include "perseus/base/environment.h"
#include "perseus/base/library_symbols.h"

namespace perseus::client {

Result<CudaDriver> LoadCudaDriver() {
  const std::string name = EnvironmentOr("PERSEUS_CUDA_LIBRARY", "libcuda.so.1");
  void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return FailAs(ErrorKind::kSystem,
                  "no CUDA driver: {} (is one installed? PERSEUS_CUDA_LIBRARY "
                  "names another)",
                  ::dlerror());
  }
  CudaDriver driver;
  LibrarySymbols symbols(library);
  symbols.Required(driver.event_create, "cuEventCreate");
  symbols.Required(driver.event_record, "cuEventRecord");
  symbols.Required(driver.event_query, "cuEventQuery");
  symbols.Required(driver.event_elapsed_time, "cuEventElapsedTime");
  symbols.Required(driver.event_destroy, "cuEventDestroy_v2");
  symbols.Required(driver.launch_host_function, "cuLaunchHostFunc");
  symbols.Required(driver.context_get_current, "cuCtxGetCurrent");
  symbols.Required(driver.context_set_current, "cuCtxSetCurrent");
  symbols.Required(driver.stream_is_capturing, "cuStreamIsCapturing");
  symbols.Required(driver.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  if (symbols.missing() != nullptr) {
    return FailAs(ErrorKind::kSystem, "{} lacks {} (a driver of CUDA 10.1 or later is needed)",
                  name, symbols.missing());
  }
  return driver;
}

}  // namespace perseus::client
