// The entry points of NVIDIA's CUDA driver (libcuda) and of NCCL that Perseus uses, looked up at
// run time. A build needs neither library. Without a driver, training continues without times of
// instructions, and `perseus qualify` measures without kernels.
//
// Types and numbers are the same as in cuda.h and nccl.h.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

#include "perseus/base/library_symbols.h"
#include "perseus/base/result.h"

namespace perseus::cuda {

using Code = int;  // CUresult.
using Device = int;
using Context = void*;
using Module = void*;
using Function = void*;
using Stream = void*;
using Event = void*;
using Address = unsigned long long;  // CUdeviceptr.

inline constexpr Code kSuccess = 0;
inline constexpr Code kDeinitialized = 4;  // The process ends.
inline constexpr Code kNotReady = 600;
inline constexpr Code kPeerAccessAlreadyEnabled = 704;
// The legacy stream was named while another stream of its context is being captured.
inline constexpr Code kCaptureImplicit = 906;
inline constexpr int kNotCapturing = 0;
inline constexpr int kCaptureRelaxed = 2;        // CU_STREAM_CAPTURE_MODE_RELAXED
inline constexpr unsigned kEventWithTiming = 0;  // CU_EVENT_DEFAULT
inline constexpr int kMultiprocessorCount = 16;  // CU_DEVICE_ATTRIBUTE_…
inline constexpr int kKernelExecTimeout = 17;
inline constexpr int kComputeCapabilityMajor = 75;
inline constexpr unsigned kHostPortable = 1, kHostMapped = 2;  // CU_MEMHOSTALLOC_…
inline constexpr unsigned kStreamNonBlocking = 1;

struct Uuid {
  unsigned char bytes[16];
};
// Formats a UUID as NVML does: "GPU-", then hexadecimal digits in groups of 8, 4, 4, 4 and 12.
std::string Name(const Uuid& uuid);

// Times work on the streams of a program that uses CUDA (10.1 or later). No function waits for the
// GPU.
struct StreamDriver {
  LibrarySymbols library;
  Code (*SetCurrent)(Context context) = library.Required("cuCtxSetCurrent");
  Code (*EventCreate)(Event* event, unsigned flags) = library.Required("cuEventCreate");
  Code (*EventRecord)(Event event, Stream stream) = library.Required("cuEventRecord");
  Code (*EventQuery)(Event event) = library.Required("cuEventQuery");
  Code (*EventElapsedTime)(float* milliseconds, Event from,
                           Event to) = library.Required("cuEventElapsedTime");
  Code (*EventDestroy)(Event event) = library.Required("cuEventDestroy_v2");
  Code (*GetCurrent)(Context* context) = library.Required("cuCtxGetCurrent");
  Code (*StreamIsCapturing)(Stream stream, int* status) = library.Required("cuStreamIsCapturing");
  // Sets the calling thread's mode, and stores the previous mode in `mode`.
  Code (*ExchangeCaptureMode)(int* mode) = library.Required("cuThreadExchangeStreamCaptureMode");
  // The following functions find the GPU of a stream. Without them, it is not compared.
  Code (*StreamGetContext)(Stream stream, Context* context) = library.Optional("cuStreamGetCtx");
  Code (*ContextGetDevice)(Device* device) = library.Optional("cuCtxGetDevice");
  Code (*DeviceGetUuid)(Uuid* uuid, Device device) = library.Optional("cuDeviceGetUuid");
  Code (*DeviceGetCount)(int* count) = library.Optional("cuDeviceGetCount");
};

// Runs Perseus's own kernels (CUDA 11 or later).
struct Driver {
  LibrarySymbols library;
  Code (*SetCurrent)(Context context) = library.Required("cuCtxSetCurrent");
  Code (*Init)(unsigned flags) = library.Required("cuInit");
  Code (*GetErrorName)(Code code, const char** name) = library.Required("cuGetErrorName");
  Code (*DeviceGetCount)(int* count) = library.Required("cuDeviceGetCount");
  Code (*DeviceGet)(Device* device, int ordinal) = library.Required("cuDeviceGet");
  Code (*DeviceGetUuid)(Uuid* uuid, Device device) = library.Required("cuDeviceGetUuid");
  Code (*DeviceGetAttribute)(int* value, int attribute,
                             Device device) = library.Required("cuDeviceGetAttribute");
  Code (*PrimaryContextRetain)(Context* context,
                               Device device) = library.Required("cuDevicePrimaryCtxRetain");
  Code (*PrimaryContextRelease)(Device device) = library.Required("cuDevicePrimaryCtxRelease_v2");
  Code (*ModuleLoadData)(Module* module, const void* image) = library.Required("cuModuleLoadData");
  Code (*ModuleUnload)(Module module) = library.Required("cuModuleUnload");
  Code (*ModuleGetFunction)(Function* function, Module module,
                            const char* name) = library.Required("cuModuleGetFunction");
  Code (*MemAlloc)(Address* address, std::size_t bytes) = library.Required("cuMemAlloc_v2");
  Code (*MemFree)(Address address) = library.Required("cuMemFree_v2");
  Code (*MemsetD32Async)(Address address, unsigned value, std::size_t count,
                         Stream stream) = library.Required("cuMemsetD32Async");
  Code (*HostAlloc)(void** memory, std::size_t bytes,
                    unsigned flags) = library.Required("cuMemHostAlloc");
  Code (*FreeHost)(void* memory) = library.Required("cuMemFreeHost");
  Code (*HostGetDevicePointer)(Address* address, void* memory,
                               unsigned flags) = library.Required("cuMemHostGetDevicePointer_v2");
  Code (*StreamCreate)(Stream* stream, unsigned flags) = library.Required("cuStreamCreate");
  Code (*StreamDestroy)(Stream stream) = library.Required("cuStreamDestroy_v2");
  Code (*StreamQuery)(Stream stream) = library.Required("cuStreamQuery");
  Code (*Launch)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                 Stream stream, void** parameters,
                 void** extra) = library.Required("cuLaunchKernel");
  Code (*CopyPeer)(Address to, Context to_context, Address from, Context from_context,
                   std::size_t bytes, Stream stream) = library.Required("cuMemcpyPeerAsync");
  Code (*CanAccessPeer)(int* can_access, Device device,
                        Device peer) = library.Required("cuDeviceCanAccessPeer");
  Code (*EnablePeerAccess)(Context peer, unsigned flags) =
      library.Required("cuCtxEnablePeerAccess");  // For the current context.

  // Succeeds if the code is kSuccess. Otherwise fails (kSystem) with the name of the error. `what`
  // completes "cannot ...".
  Result<void> Check(Code code, const char* what) const;
  // Makes the calls in this order, and stops at the first call that fails. Returns the result of
  // Check() for that call.
  Result<void> Try(
      std::initializer_list<std::pair<const char*, std::function<Code()>>> calls) const;
};

// Both functions load PERSEUS_CUDA_LIBRARY, or else libcuda.so.1 by the loader's rules. The library
// stays loaded. Both functions fail (kSystem) if the library is missing, is too old, or cannot be
// initialized.
Result<StreamDriver> LoadForStreams();
// Also initializes CUDA.
Result<Driver> LoadForKernels();

// Whether the calling thread has a CUDA context, as a thread that computes on a GPU has. Loads and
// initializes nothing: if the process has not loaded the library yet, returns false. Makes no
// system call. In a process with 46 libraries (torch without CUDA), the call takes 0.3 us.
bool HasCurrentContext();

struct Nccl {
  LibrarySymbols library;
  int (*CommInitAll)(void** communicators, int count,
                     const int* devices) = library.Required("ncclCommInitAll");
  int (*CommAbort)(void* communicator) = library.Required("ncclCommAbort");
  int (*GroupStart)() = library.Required("ncclGroupStart");
  int (*GroupEnd)() = library.Required("ncclGroupEnd");
  int (*AllReduce)(const void* from, void* to, std::size_t count, int type, int operation,
                   void* communicator,
                   Stream stream) = library.Required("ncclAllReduce");  // Device addresses.
  const char* (*GetErrorString)(int code) = library.Required("ncclGetErrorString");
  static constexpr int kFloat32 = 7;
  static constexpr int kSum = 0;

  // Succeeds if the code is 0. Otherwise fails (kSystem) with NCCL's text. `what` completes "NCCL
  // cannot ...".
  Result<void> Check(int code, const char* what) const;
};

// Loads PERSEUS_NCCL_LIBRARY, or libnccl.so.2. Fails (kSystem) if the library is missing.
Result<Nccl> LoadNccl();

}  // namespace perseus::cuda
