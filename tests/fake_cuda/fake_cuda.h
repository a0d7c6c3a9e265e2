// A fake CUDA driver. A stream is a queue; its work proceeds only when the test advances the GPU's
// time. The fake counts calls, can make calls fail, and ends the test's process if a call would
// wait for the GPU or stop a stream.
//
// Thread-safe, as the real driver.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fake_cuda {

// Resets the driver: one GPU, no streams, calls, failures or events, and time 0.
void Reset();
void AddGpu(const std::string& uuid);
// Makes the primary context of this GPU the current one of the thread. 0 is the first GPU.
void SetCurrentGpu(int index);
// Makes a stream in the current context; without one, in that of the first GPU.
void* MakeStream();
// Appends work of this duration to the stream.
void Launch(void* stream, std::int64_t duration_ns);
// Advances the GPU's time. The streams run their work up to the new time.
void Advance(std::int64_t duration_ns);

// Begins or ends a capture in the global mode, which is the default. During a capture, calls that
// query events fail and break the capture, unless the calling thread is in the relaxed mode. The
// legacy stream (null) cannot be used during any capture.
void SetCapturing(void* stream, bool is_capturing);
bool IsCaptureBroken(void* stream);
// After `after` more calls, this entry point returns `result` on each call.
void FailFrom(std::string_view entry_point, int result, int after = 0);

int Calls(std::string_view entry_point);
int LiveEvents();
// The number of items in the stream's queue.
int Queued(void* stream);

}  // namespace fake_cuda
