// The functions of libcuda.so.1 that the client calls, for tests in Python. These tests control the
// functions through ctypes. Work ends at once. Calls can be delayed, as with a full queue of
// launches. For each context, the driver counts the calls while the context was current.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

namespace {

constexpr std::size_t kContexts = 8;

std::atomic<bool> is_held = false;
std::atomic<bool> is_waiting = false;
std::array<std::atomic<int>, kContexts> calls = {};
thread_local char* current = nullptr;
char contexts[kContexts];

// Counts a call on a stream of the current context. While calls are delayed, waits.
int Enqueue() {
  if (current != nullptr) ++calls[static_cast<std::size_t>(current - contexts)];
  while (is_held) {
    is_waiting = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  is_waiting = false;
  return 0;
}

}  // namespace

extern "C" {

// For tests. Contexts have the numbers 0 to 7. -1: no context.
void fake_cuda_set_context(int number) { current = number < 0 ? nullptr : contexts + number; }
int fake_cuda_calls(int number) { return calls[static_cast<std::size_t>(number)]; }
void fake_cuda_hold(int held) { is_held = held != 0; }
int fake_cuda_is_waiting() { return is_waiting ? 1 : 0; }

int cuEventCreate(void** event, unsigned /*flags*/) {
  *event = contexts;
  return 0;
}
int cuEventRecord(void* /*event*/, void* /*stream*/) { return Enqueue(); }
int cuEventQuery(void* /*event*/) { return 0; }
int cuEventElapsedTime(float* milliseconds, void* /*from*/, void* /*to*/) {
  *milliseconds = 1;
  return 0;
}
int cuEventDestroy_v2(void* /*event*/) { return 0; }
int cuCtxGetCurrent(void** context) {
  *context = current;
  return 0;
}
int cuCtxSetCurrent(void* context) {
  current = static_cast<char*>(context);
  return 0;
}
int cuStreamIsCapturing(void* /*stream*/, int* status) {
  *status = 0;
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* /*mode*/) { return 0; }

}  // extern "C"
