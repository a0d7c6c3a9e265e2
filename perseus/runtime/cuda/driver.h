// The entry points of NVIDIA's CUDA driver (libcuda) and of NCCL that Perseus uses, looked up at
// run time. A build needs neither. Without a driver, training goes on untimed, and `perseus
// qualify` measures without kernels.
//
// Types and numbers are those of cuda.h and nccl.h.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <utility>

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

// A function is null if the purpose of Load() does not need it.
struct Driver {
  Code (*SetCurrent)(Context context) = nullptr;
  Code (*LaunchHostFunction)(Stream stream, void (*function)(void*), void* argument) = nullptr;

  // For Purpose::kStreams. None of them waits for the GPU.
  Code (*EventCreate)(Event* event, unsigned flags) = nullptr;
  Code (*EventRecord)(Event event, Stream stream) = nullptr;
  Code (*EventQuery)(Event event) = nullptr;
  Code (*EventElapsedTime)(float* milliseconds, Event from, Event to) = nullptr;
  Code (*EventDestroy)(Event event) = nullptr;
  Code (*GetCurrent)(Context* context) = nullptr;
  Code (*StreamIsCapturing)(Stream stream, int* status) = nullptr;
  // Sets the calling thread's mode. The mode before is left in `mode`.
  Code (*ExchangeCaptureMode)(int* mode) = nullptr;

  // For Purpose::kKernels.
  Code (*Init)(unsigned flags) = nullptr;
  Code (*GetErrorName)(Code code, const char** name) = nullptr;
  Code (*DeviceGetCount)(int* count) = nullptr;
  Code (*DeviceGet)(Device* device, int ordinal) = nullptr;
  Code (*DeviceGetUuid)(Uuid* uuid, Device device) = nullptr;
  Code (*DeviceGetAttribute)(int* value, int attribute, Device device) = nullptr;
  Code (*PrimaryContextRetain)(Context* context, Device device) = nullptr;
  Code (*PrimaryContextRelease)(Device device) = nullptr;
  Code (*ModuleLoadData)(Module* module, const void* image) = nullptr;
  Code (*ModuleUnload)(Module module) = nullptr;
  Code (*ModuleGetFunction)(Function* function, Module module, const char* name) = nullptr;
  Code (*MemAlloc)(Address* address, std::size_t bytes) = nullptr;
  Code (*MemFree)(Address address) = nullptr;
  Code (*MemsetD32Async)(Address address, unsigned value, std::size_t count,
                         Stream stream) = nullptr;
  Code (*HostAlloc)(void** memory, std::size_t bytes, unsigned flags) = nullptr;
  Code (*FreeHost)(void* memory) = nullptr;
  Code (*HostGetDevicePointer)(Address* address, void* memory, unsigned flags) = nullptr;
  Code (*StreamCreate)(Stream* stream, unsigned flags) = nullptr;
  Code (*StreamDestroy)(Stream stream) = nullptr;
  Code (*StreamQuery)(Stream stream) = nullptr;
  Code (*Launch)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                 Stream stream, void** parameters, void** extra) = nullptr;
  Code (*CopyPeer)(Address to, Context to_context, Address from, Context from_context,
                   std::size_t bytes, Stream stream) = nullptr;
  Code (*CanAccessPeer)(int* can_access, Device device, Device peer) = nullptr;
  Code (*EnablePeerAccess)(Context peer, unsigned flags) = nullptr;  // For the current context.

  // Fails (kSystem) with the name of the error unless the code is kSuccess. `what` completes
  // "cannot ...". For kKernels.
  Result<void> Check(Code code, const char* what) const;
  // Makes the calls in this order, up to the first that fails. Returns as Check().
  Result<void> Try(
      std::initializer_list<std::pair<const char*, std::function<Code()>>> calls) const;
};

enum class Purpose {
  kStreams,  // Times work on the streams of a program that uses CUDA (CUDA 10.1 or later).
  kKernels,  // Runs kernels of its own (CUDA 11 or later). Load() initializes CUDA.
};

// PERSEUS_CUDA_LIBRARY, or libcuda.so.1 by the loader's rules. It stays loaded. Fails (kSystem) if
// there is none, if it is too old, or if it cannot be initialized.
Result<Driver> Load(Purpose purpose);

struct Nccl {
  int (*CommInitAll)(void** communicators, int count, const int* devices) = nullptr;
  int (*CommAbort)(void* communicator) = nullptr;
  int (*GroupStart)() = nullptr;
  int (*GroupEnd)() = nullptr;
  int (*AllReduce)(const void* from, void* to, std::size_t count, int type, int operation,
                   void* communicator, Stream stream) = nullptr;  // Device addresses.
  const char* (*GetErrorString)(int code) = nullptr;
  static constexpr int kFloat32 = 7;
  static constexpr int kSum = 0;

  // Fails (kSystem) with NCCL's text unless the code is 0. `what` completes "NCCL cannot ...".
  Result<void> Check(int code, const char* what) const;
};

// PERSEUS_NCCL_LIBRARY, or libnccl.so.2. Fails (kSystem) if there is none.
Result<Nccl> LoadNccl();

}  // namespace perseus::cuda
