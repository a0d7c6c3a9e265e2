// A CUDA driver of our own: a stream is a queue that stands still until the test lets the GPU's
// time pass. What the client calls is counted, calls can be made to fail, and whatever would wait
// for the GPU ends the test's process.
//
// Thread safety: all calls may come from several threads, as with the real one. Host functions run
// in the thread that calls Advance.
#pragma once

#include <cstdint>
#include <string_view>

namespace fake_cuda {

// A driver without streams, calls, failures and events, whose time is 0.
void Reset();
void* MakeStream();
// Work of so many nanoseconds at the end of the stream.
void Launch(void* stream, std::int64_t duration_ns);
// The GPU's time passes; queues are worked off as far as they get.
void Advance(std::int64_t duration_ns);

// In the global mode, as captures are unless told otherwise: what a thread that is not relaxed asks
// of events meanwhile fails, and breaks the capture. While any stream is captured, the legacy one
// (null) cannot be used.
void SetCapturing(void* stream, bool is_capturing);
bool IsCaptureBroken(void* stream);
// From its next call but `after` on, this entry point returns `result`.
void FailFrom(std::string_view entry_point, int result, int after = 0);

int Calls(std::string_view entry_point);
int LiveEvents();
// What waits in the stream's queue.
int Queued(void* stream);

}  // namespace fake_cuda
