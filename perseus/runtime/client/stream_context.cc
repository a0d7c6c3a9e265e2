#include "perseus/runtime/client/stream_context.h"

#include <cstdint>
#include <optional>

namespace perseus::client {
namespace {

Result<void> Check(cuda::Code code, const char* call) {
  if (code == cuda::kSuccess) return {};
  return FailAs(ErrorKind::kSystem, "the CUDA driver's {} failed with {}", call, code);
}

// Whether the handle means a stream of any context: 0, 1 (legacy) or 2 (of the thread).
bool IsOfAnyContext(cuda::Stream stream) {
  constexpr std::uintptr_t kLastSuch = 2;
  return reinterpret_cast<std::uintptr_t>(stream) <= kLastSuch;
}

bool CanCompare(const cuda::StreamDriver& driver, const std::string& gpu) {
  constexpr std::size_t kCharacters = 40;  // "GPU-", 32 digits and 4 hyphens.
  return gpu.size() == kCharacters && driver.StreamGetContext != nullptr &&
         driver.ContextGetDevice != nullptr && driver.DeviceGetUuid != nullptr &&
         driver.DeviceGetCount != nullptr && driver.DeviceGet != nullptr &&
         driver.PrimaryContextGetState != nullptr && driver.PrimaryContextRetain != nullptr;
}

Result<std::string> UuidOf(const cuda::StreamDriver& driver, cuda::Device device) {
  cuda::Uuid uuid{};
  PERSEUS_RETURN_IF_ERROR(Check(driver.DeviceGetUuid(&uuid, device), "cuDeviceGetUuid"));
  return cuda::Name(uuid);
}

// The UUID of the GPU of this context, which becomes the current one.
Result<std::string> GpuOf(const cuda::StreamDriver& driver, cuda::Context context) {
  PERSEUS_RETURN_IF_ERROR(Check(driver.SetCurrent(context), "cuCtxSetCurrent"));
  cuda::Device device = 0;
  PERSEUS_RETURN_IF_ERROR(Check(driver.ContextGetDevice(&device), "cuCtxGetDevice"));
  return UuidOf(driver, device);
}

// The primary context of this GPU. Nullopt if this program does not use the GPU: a new context
// would take hundreds of megabytes of its memory.
Result<std::optional<cuda::Context>> PrimaryContextOf(const cuda::StreamDriver& driver,
                                                      const std::string& gpu) {
  int count = 0;
  PERSEUS_RETURN_IF_ERROR(Check(driver.DeviceGetCount(&count), "cuDeviceGetCount"));
  for (int i = 0; i < count; ++i) {
    cuda::Device device = 0;
    PERSEUS_RETURN_IF_ERROR(Check(driver.DeviceGet(&device, i), "cuDeviceGet"));
    PERSEUS_ASSIGN_OR_RETURN(const std::string uuid, UuidOf(driver, device));
    if (uuid != gpu) continue;
    unsigned flags = 0;
    int is_active = 0;
    PERSEUS_RETURN_IF_ERROR(Check(driver.PrimaryContextGetState(device, &flags, &is_active),
                                  "cuDevicePrimaryCtxGetState"));
    if (is_active == 0) return std::optional<cuda::Context>();
    // The program uses this context until it ends, so it is not released.
    cuda::Context context = nullptr;
    PERSEUS_RETURN_IF_ERROR(
        Check(driver.PrimaryContextRetain(&context, device), "cuDevicePrimaryCtxRetain"));
    return std::optional(context);
  }
  return std::optional<cuda::Context>();
}

}  // namespace

Result<cuda::Context> ContextOf(const cuda::StreamDriver& driver, cuda::Stream stream,
                                const std::string& gpu) {
  cuda::Context context = nullptr;
  const bool is_of_any = IsOfAnyContext(stream);
  if (is_of_any || driver.StreamGetContext == nullptr) {
    PERSEUS_RETURN_IF_ERROR(Check(driver.GetCurrent(&context), "cuCtxGetCurrent"));
  } else {
    PERSEUS_RETURN_IF_ERROR(Check(driver.StreamGetContext(stream, &context), "cuStreamGetCtx"));
  }
  if (!CanCompare(driver, gpu)) return context;
  std::string found = "none";
  if (context != nullptr) {
    PERSEUS_ASSIGN_OR_RETURN(found, GpuOf(driver, context));
    if (found == gpu) return context;
  }
  if (is_of_any) {
    PERSEUS_ASSIGN_OR_RETURN(const auto primary, PrimaryContextOf(driver, gpu));
    if (primary) return *primary;
  }
  return FailAs(ErrorKind::kSystem,
                "the stream is on another GPU ({}) than the session ({}) (set PERSEUS_GPU to the "
                "GPU of this process)",
                found, gpu);
}

}  // namespace perseus::client
