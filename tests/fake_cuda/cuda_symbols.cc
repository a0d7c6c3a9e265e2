// The functions of libcuda.so.1 that the client calls, and the functions that would synchronize.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "perseus/base/mutex.h"
#include "tests/fake_cuda/call_log.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace {

using perseus::Mutex;
using perseus::MutexLock;

constexpr int kNotReady = 600;
constexpr int kInvalidHandle = 400;
constexpr int kInvalidContext = 201;
constexpr int kUnsafeInCapture = 900;
constexpr int kCaptureImplicit = 906;
constexpr int kRelaxed = 2;

struct Gpu;
struct Event {
  Gpu* gpu = nullptr;  // The event belongs to the context of this GPU.
  bool is_recorded = false;
  std::int64_t at = -1;  // The GPU's time at the event. -1: the GPU has not reached the event.
};
struct Item {
  std::int64_t duration = 0;
  Event* event = nullptr;  // Null: work.
};
struct Stream {
  Gpu* gpu = nullptr;
  std::deque<Item> items;
  std::int64_t free_at = 0;  // The time at which the last started work ends.
  bool is_capturing = false;
  bool is_broken = false;  // True: the capture is invalid.
};
// A GPU and its primary context, whose handle is the address of this object.
struct Gpu {
  std::string uuid;
  Stream legacy;
};
struct Driver {
  CallLog calls;
  Mutex mutex;
  std::int64_t now PERSEUS_GUARDED_BY(mutex) = 0;
  std::vector<std::unique_ptr<Gpu>> gpus PERSEUS_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<Stream>> streams PERSEUS_GUARDED_BY(mutex);
  std::set<Event*> events PERSEUS_GUARDED_BY(mutex);
};

Driver& driver() {
  static Driver the_driver;
  return the_driver;
}
// A thread has no context until it creates a stream or sets a context.
thread_local Gpu* current_context = nullptr;
thread_local int capture_mode = 0;  // 0 is the global mode.

// Enters a function that is forbidden during a capture.
int EnterUnsafe(const char* entry_point) PERSEUS_REQUIRES(driver().mutex) {
  const int failed = driver().calls.Enter(entry_point);
  if (failed != 0 || capture_mode == kRelaxed) return failed;
  int result = 0;
  for (const auto& stream : driver().streams) {
    if (!stream->is_capturing) continue;
    stream->is_broken = true;
    result = kUnsafeInCapture;
  }
  return result;
}

bool IsAnyCapturing() PERSEUS_REQUIRES(driver().mutex) {
  return std::any_of(driver().streams.begin(), driver().streams.end(),
                     [](const auto& stream) { return stream->is_capturing; });
}

bool IsLegacy(const Stream* stream) { return stream == &stream->gpu->legacy; }

// Returns null if the stream does not exist. The legacy stream belongs to the current context.
Stream* StreamOf(void* handle) PERSEUS_REQUIRES(driver().mutex) {
  if (handle == nullptr) return current_context == nullptr ? nullptr : &current_context->legacy;
  for (const auto& stream : driver().streams) {
    if (stream.get() == handle) return stream.get();
  }
  return nullptr;
}

int Enqueue(void* handle, const Item& item) PERSEUS_REQUIRES(driver().mutex) {
  Stream* const stream = StreamOf(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (item.event != nullptr && item.event->gpu != stream->gpu) return kInvalidHandle;
  if (IsLegacy(stream) && IsAnyCapturing()) return kCaptureImplicit;
  // If the queue is empty, new work begins now, not in the past.
  if (stream->items.empty()) stream->free_at = std::max(stream->free_at, driver().now);
  stream->items.push_back(item);
  return 0;
}

Gpu* MakeGpu(const std::string& uuid) PERSEUS_REQUIRES(driver().mutex) {
  Gpu* const gpu = driver().gpus.emplace_back(std::make_unique<Gpu>()).get();
  gpu->uuid = uuid;
  gpu->legacy.gpu = gpu;
  return gpu;
}

[[noreturn]] void Refuse(const char* entry_point, const char* what_it_does) {
  std::fprintf(stderr, "the client called %s, which %s\n", entry_point, what_it_does);
  std::abort();
}
[[noreturn]] void Synchronized(const char* entry_point) {
  Refuse(entry_point, "waits for the GPU");
}

}  // namespace

namespace fake_cuda {

void Reset() {
  const MutexLock lock(driver().mutex);
  driver().now = 0;
  driver().streams.clear();
  driver().gpus.clear();
  MakeGpu("GPU-00000000-0000-0000-0000-000000000000");
  current_context = nullptr;
  for (Event* event : driver().events) delete event;
  driver().events.clear();
  driver().calls.Clear();
}

void AddGpu(const std::string& uuid) {
  const MutexLock lock(driver().mutex);
  MakeGpu(uuid);
}

void SetCurrentGpu(int index) {
  const MutexLock lock(driver().mutex);
  current_context = driver().gpus.at(static_cast<std::size_t>(index)).get();
}

void* MakeStream() {
  const MutexLock lock(driver().mutex);
  if (current_context == nullptr) {
    current_context = driver().gpus.front().get();
  }
  Stream* const stream = driver().streams.emplace_back(std::make_unique<Stream>()).get();
  stream->gpu = current_context;
  return stream;
}

void Launch(void* stream, std::int64_t duration_ns) {
  const MutexLock lock(driver().mutex);
  Item item;
  item.duration = duration_ns;
  static_cast<void>(Enqueue(stream, item));
}

void Advance(std::int64_t duration_ns) {
  const MutexLock lock(driver().mutex);
  const std::int64_t until = driver().now + duration_ns;
  std::vector<Stream*> streams;
  for (const auto& gpu : driver().gpus) streams.push_back(&gpu->legacy);
  for (const auto& stream : driver().streams) streams.push_back(stream.get());
  for (Stream* const stream : streams) {
    while (!stream->items.empty()) {
      const Item item = stream->items.front();
      if (stream->free_at + item.duration > until) break;
      stream->free_at += item.duration;
      stream->items.pop_front();
      if (item.event != nullptr) item.event->at = stream->free_at;
    }
  }
  driver().now = until;
}

void SetCapturing(void* stream, bool is_capturing) {
  const MutexLock lock(driver().mutex);
  static_cast<Stream*>(stream)->is_capturing = is_capturing;
}

bool IsCaptureBroken(void* stream) {
  const MutexLock lock(driver().mutex);
  return static_cast<Stream*>(stream)->is_broken;
}

void FailFrom(std::string_view entry_point, int result, int after) {
  driver().calls.Fail(entry_point, result, after);
}

int Calls(std::string_view entry_point) { return driver().calls.Calls(entry_point); }

int LiveEvents() {
  const MutexLock lock(driver().mutex);
  return static_cast<int>(driver().events.size());
}

int Queued(void* stream) {
  const MutexLock lock(driver().mutex);
  return static_cast<int>(static_cast<Stream*>(stream)->items.size());
}

}  // namespace fake_cuda

extern "C" {

int cuEventCreate(void** event, unsigned /*flags*/) {
  const MutexLock lock(driver().mutex);
  if (const int failed = EnterUnsafe(__func__); failed != 0) return failed;
  if (current_context == nullptr) return kInvalidContext;
  auto* const made = new Event;
  made->gpu = current_context;
  driver().events.insert(made);
  *event = made;
  return 0;
}

int cuEventRecord(void* handle, void* stream) {
  const MutexLock lock(driver().mutex);
  if (const int failed = driver().calls.Enter(__func__); failed != 0) return failed;
  auto* event = static_cast<Event*>(handle);
  if (!driver().events.contains(event)) return kInvalidHandle;
  event->is_recorded = true;
  event->at = -1;
  return Enqueue(stream, {0, event});
}

int cuEventQuery(void* handle) {
  const MutexLock lock(driver().mutex);
  if (const int failed = EnterUnsafe(__func__); failed != 0) return failed;
  if (current_context == nullptr) return kInvalidContext;
  auto* event = static_cast<Event*>(handle);
  if (!driver().events.contains(event)) return kInvalidHandle;
  return event->is_recorded && event->at < 0 ? kNotReady : 0;
}

int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
  const MutexLock lock(driver().mutex);
  if (const int failed = EnterUnsafe(__func__); failed != 0) return failed;
  if (current_context == nullptr) return kInvalidContext;
  const auto* first = static_cast<Event*>(from);
  const auto* last = static_cast<Event*>(to);
  if (!first->is_recorded || !last->is_recorded) return kInvalidHandle;
  if (first->at < 0 || last->at < 0) return kNotReady;
  *milliseconds = static_cast<float>(static_cast<double>(last->at - first->at) / 1e6);
  return 0;
}

int cuEventDestroy_v2(void* handle) {
  const MutexLock lock(driver().mutex);
  if (const int failed = EnterUnsafe(__func__); failed != 0) return failed;
  auto* event = static_cast<Event*>(handle);
  if (driver().events.erase(event) == 0) return kInvalidHandle;
  // The real driver frees the event after the GPU has passed it.
  for (const auto& stream : driver().streams) {
    std::erase_if(stream->items, [event](const Item& item) { return item.event == event; });
  }
  for (const auto& gpu : driver().gpus) {
    std::erase_if(gpu->legacy.items, [event](const Item& item) { return item.event == event; });
  }
  delete event;
  return 0;
}

int cuCtxGetCurrent(void** context) {
  const MutexLock lock(driver().mutex);
  if (const int failed = driver().calls.Enter(__func__); failed != 0) return failed;
  *context = current_context;
  return 0;
}

int cuCtxSetCurrent(void* context) {
  const MutexLock lock(driver().mutex);
  if (const int failed = driver().calls.Enter(__func__); failed != 0) return failed;
  current_context = static_cast<Gpu*>(context);
  return 0;
}

int cuStreamIsCapturing(void* handle, int* status) {
  const MutexLock lock(driver().mutex);
  if (const int failed = driver().calls.Enter(__func__); failed != 0) return failed;
  const Stream* const stream = StreamOf(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (IsLegacy(stream) && IsAnyCapturing()) return kCaptureImplicit;
  *status = stream->is_capturing ? 1 : 0;
  return 0;
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  const MutexLock lock(driver().mutex);
  if (const int failed = driver().calls.Enter(__func__); failed != 0) return failed;
  std::swap(*mode, capture_mode);
  return 0;
}

int cuStreamGetCtx(void* handle, void** context) {
  const MutexLock lock(driver().mutex);
  if (const int failed = driver().calls.Enter(__func__); failed != 0) return failed;
  const Stream* const stream = StreamOf(handle);
  if (stream == nullptr) return kInvalidHandle;
  *context = stream->gpu;
  return 0;
}

int cuCtxGetDevice(int* device) {
  const MutexLock lock(driver().mutex);
  if (const int failed = driver().calls.Enter(__func__); failed != 0) return failed;
  if (current_context == nullptr) return kInvalidContext;
  for (std::size_t i = 0; i < driver().gpus.size(); ++i) {
    if (driver().gpus[i].get() == current_context) *device = static_cast<int>(i);
  }
  return 0;
}

int cuDeviceGetCount(int* count) {
  const MutexLock lock(driver().mutex);
  if (const int failed = driver().calls.Enter(__func__); failed != 0) return failed;
  *count = static_cast<int>(driver().gpus.size());
  return 0;
}

int cuDeviceGetUuid(unsigned char* uuid, int device) {
  const MutexLock lock(driver().mutex);
  if (const int failed = driver().calls.Enter(__func__); failed != 0) return failed;
  std::string digits = driver().gpus.at(static_cast<std::size_t>(device))->uuid;
  std::erase(digits, '-');
  digits.erase(0, std::string_view("GPU").size());
  for (std::size_t i = 0; i < digits.size() / 2; ++i) {
    uuid[i] = static_cast<unsigned char>(std::stoul(digits.substr(2 * i, 2), nullptr, 16));
  }
  return 0;
}

// The work behind a host function waits for this function: 0.11 ms on an H100.
int cuLaunchHostFunc(void*, void (*)(void*), void*) {
  Refuse("cuLaunchHostFunc", "stops the stream");
}
int cuCtxSynchronize() { Synchronized("cuCtxSynchronize"); }
int cuStreamSynchronize(void*) { Synchronized("cuStreamSynchronize"); }
int cuEventSynchronize(void*) { Synchronized("cuEventSynchronize"); }

}  // extern "C"
