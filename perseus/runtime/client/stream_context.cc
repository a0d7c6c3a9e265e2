#include "perseus/runtime/client/stream_context.h"

#include <cstdint>

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
         driver.ContextGetDevice != nullptr && driver.DeviceGetUuid != nullptr;
}

// The UUID of the GPU of this context, which becomes the current one.
Result<std::string> GpuOf(const cuda::StreamDriver& driver, cuda::Context context) {
  PERSEUS_RETURN_IF_ERROR(Check(driver.SetCurrent(context), "cuCtxSetCurrent"));
  cuda::Device device = 0;
  PERSEUS_RETURN_IF_ERROR(Check(driver.ContextGetDevice(&device), "cuCtxGetDevice"));
  cuda::Uuid uuid{};
  PERSEUS_RETURN_IF_ERROR(Check(driver.DeviceGetUuid(&uuid, device), "cuDeviceGetUuid"));
  return cuda::Name(uuid);
}

// Whether the process sees several GPUs.
bool HasSeveralGpus(const cuda::StreamDriver& driver) {
  int count = 0;
  return driver.DeviceGetCount != nullptr && driver.DeviceGetCount(&count) == cuda::kSuccess &&
         count > 1;
}

}  // namespace

Result<cuda::Context> ContextOf(const cuda::StreamDriver& driver, cuda::Stream stream,
                                const std::string& gpu) {
  cuda::Context context = nullptr;
  if (IsOfAnyContext(stream) || driver.StreamGetContext == nullptr) {
    PERSEUS_RETURN_IF_ERROR(Check(driver.GetCurrent(&context), "cuCtxGetCurrent"));
  } else {
    PERSEUS_RETURN_IF_ERROR(Check(driver.StreamGetContext(stream, &context), "cuStreamGetCtx"));
  }
  if (context == nullptr || !CanCompare(driver, gpu)) return context;
  PERSEUS_ASSIGN_OR_RETURN(const std::string found, GpuOf(driver, context));
  if (found == gpu) return context;
  return FailAs(ErrorKind::kSystem,
                "the stream is on another GPU ({}) than the session ({}) (make the session's GPU "
                "the current device, as torch.cuda.set_device does, or set PERSEUS_GPU)",
                found, gpu);
}

std::string WhyUnchecked(const cuda::StreamDriver& driver, cuda::Stream stream,
                         const std::string& gpu) {
  if (!gpu.empty() || !IsOfAnyContext(stream) || !HasSeveralGpus(driver)) return {};
  return "the session does not know its GPU, and the default stream (handle 0) is that of the "
         "current device: if the work runs on another device, its times are those of an idle GPU "
         "(set PERSEUS_GPU to the UUID of the GPU, or let the process see only this GPU)";
}

}  // namespace perseus::client
