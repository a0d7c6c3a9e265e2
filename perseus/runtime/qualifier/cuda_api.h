// The entry points of NVIDIA's driver (libcuda) and of NCCL that cuda_node.h uses, looked up at run
// time. A build needs neither, and a node without them is measured without kernels.
//
// Types and numbers are those of cuda.h and nccl.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "perseus/base/result.h"

namespace perseus::qualifier::cuda {

using Device = int;
using Context = void*;
using Module = void*;
using Function = void*;
using Stream = void*;
using Address = unsigned long long;  // CUdeviceptr.

inline constexpr int kSuccess = 0;
inline constexpr int kNotReady = 600;
inline constexpr int kPeerAccessAlreadyEnabled = 704;
inline constexpr int kMultiprocessorCount = 16;  // CU_DEVICE_ATTRIBUTE_…
inline constexpr int kKernelExecTimeout = 17;
inline constexpr int kMaxThreadsPerMultiprocessor = 39;
inline constexpr int kComputeCapabilityMajor = 75;
inline constexpr unsigned kHostPortable = 1, kHostMapped = 2;  // CU_MEMHOSTALLOC_…
inline constexpr unsigned kStreamNonBlocking = 1;

struct Uuid {
  unsigned char bytes[16];
};

struct Functions {
  int (*Init)(unsigned flags) = nullptr;
  int (*GetErrorName)(int code, const char** name) = nullptr;
  int (*DeviceGetCount)(int* count) = nullptr;
  int (*DeviceGet)(Device* device, int ordinal) = nullptr;
  int (*DeviceGetUuid)(Uuid* uuid, Device device) = nullptr;
  int (*DeviceGetAttribute)(int* value, int attribute, Device device) = nullptr;
  int (*PrimaryContextRetain)(Context* context, Device device) = nullptr;
  int (*PrimaryContextRelease)(Device device) = nullptr;
  int (*SetCurrent)(Context context) = nullptr;
  int (*ModuleLoadData)(Module* module, const void* image) = nullptr;
  int (*ModuleUnload)(Module module) = nullptr;
  int (*ModuleGetFunction)(Function* function, Module module, const char* name) = nullptr;
  int (*MemAlloc)(Address* address, std::size_t bytes) = nullptr;
  int (*MemFree)(Address address) = nullptr;
  int (*MemsetD32Async)(Address address, unsigned value, std::size_t count,
                        Stream stream) = nullptr;
  int (*HostAlloc)(void** memory, std::size_t bytes, unsigned flags) = nullptr;
  int (*FreeHost)(void* memory) = nullptr;
  int (*HostGetDevicePointer)(Address* address, void* memory, unsigned flags) = nullptr;
  int (*StreamCreate)(Stream* stream, unsigned flags) = nullptr;
  int (*StreamDestroy)(Stream stream) = nullptr;
  int (*StreamQuery)(Stream stream) = nullptr;
  int (*Launch)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                Stream stream, void** parameters, void** extra) = nullptr;
  int (*LaunchHostFunction)(Stream stream, void (*function)(void*), void* argument) = nullptr;
  int (*CopyPeer)(Address to, Context to_context, Address from, Context from_context,
                  std::size_t bytes, Stream stream) = nullptr;
  int (*CanAccessPeer)(int* can_access, Device device, Device peer) = nullptr;
  int (*EnablePeerAccess)(Context peer, unsigned flags) = nullptr;  // For the current context.
};

struct Api {
  std::shared_ptr<void> library;
  Functions f;

  // Fails (kSystem) with the name of the error unless the code is kSuccess.
  Result<void> Check(int code, const char* what) const;
};

// PERSEUS_CUDA_LIBRARY, or libcuda.so.1 by the loader's rules; initialized. The library stays
// loaded. Fails (kSystem) if there is none, if it is too old, or if it has no GPU.
Result<Api> Open();

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
Result<Nccl> OpenNccl();

}  // namespace perseus::qualifier::cuda
