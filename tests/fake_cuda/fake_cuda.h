// A fake CUDA driver. A stream is a queue. Its work proceeds only when the test advances the GPU's
// time. The fake counts calls, and can make calls fail. If a call would wait for the GPU or stop a
// stream, the fake ends the test's process.
//
// Thread-safe, like the real driver.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fake_cuda {

// Resets the driver: one GPU, no streams, calls, failures or events, and time 0.
void Reset();
void AddGpu(const std::string& uuid);
// Makes the primary context of this GPU the current context of the thread. 0 is the first GPU.
void SetCurrentGpu(int index);
// Makes a stream in the current context. If there is no current context, uses the context of the
// first GPU.
void* MakeStream();
// Appends work of this duration to the stream.
void Launch(void* stream, std::int64_t duration_ns);
// Advances the GPU's time. The streams run their work up to the new time.
void Advance(std::int64_t duration_ns);

// Begins or ends a capture in the global mode, which is the default mode. During a capture, calls
// that query events fail and break the capture, unless the calling thread is in the relaxed mode.
// During any capture, the legacy stream (null) cannot be used.
void SetCapturing(void* stream, bool is_capturing);
bool IsCaptureBroken(void* stream);
// Lets `after` more calls of this entry point succeed. Each later call returns `result`.
void FailFrom(std::string_view entry_point, int result, int after = 0);

int Calls(std::string_view entry_point);
int LiveEvents();
// The number of items in the stream's queue.
int Queued(void* stream);

}  // namespace fake_cuda
