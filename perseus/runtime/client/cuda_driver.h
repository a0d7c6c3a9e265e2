// The few entry points of NVIDIA's driver that timing on a stream takes, looked up in the library
// that training has loaded anyway: libperseus links no CUDA, and runs without.
//
// None of them waits for the GPU. Types and numbers are those of cuda.h.
#pragma once

#include "perseus/base/result.h"

namespace perseus::client {

using CudaResult = int;
using CudaStream = void*;
using CudaEvent = void*;
using CudaContext = void*;
inline constexpr CudaResult kCudaSuccess = 0;
inline constexpr CudaResult kCudaDeinitialized = 4;  // The process ends.
inline constexpr CudaResult kCudaNotReady = 600;
// The legacy stream was named while another stream of its context is being captured.
inline constexpr CudaResult kCudaCaptureImplicit = 906;
inline constexpr int kCudaNotCapturing = 0;
inline constexpr int kCudaCaptureRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

struct CudaDriver {
  CudaResult (*event_create)(CudaEvent* event, unsigned flags) = nullptr;
  CudaResult (*event_record)(CudaEvent event, CudaStream stream) = nullptr;
  CudaResult (*event_query)(CudaEvent event) = nullptr;
  CudaResult (*event_elapsed_time)(float* milliseconds, CudaEvent from, CudaEvent to) = nullptr;
  CudaResult (*event_destroy)(CudaEvent event) = nullptr;
  CudaResult (*launch_host_function)(CudaStream stream, void (*function)(void*),
                                     void* argument) = nullptr;
  CudaResult (*context_get_current)(CudaContext* context) = nullptr;
  CudaResult (*context_set_current)(CudaContext context) = nullptr;
  CudaResult (*stream_is_capturing)(CudaStream stream, int* status) = nullptr;
  // The calling thread's own mode; the one before is left in `mode`.
  CudaResult (*exchange_capture_mode)(int* mode) = nullptr;
};

// PERSEUS_CUDA_LIBRARY, or libcuda.so.1 by the loader's rules. Stays loaded. Fails (kSystem) if
// there is none, or one that is too old (CUDA 10.1 brought what is needed).
Result<CudaDriver> LoadCudaDriver();

}  // namespace perseus::client
