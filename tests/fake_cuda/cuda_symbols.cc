// The functions of libcuda.so.1 that the client calls, and those that would synchronize.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "perseus/base/mutex.h"
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

struct Event {
  bool is_recorded = false;
  std::int64_t at = -1;  // The GPU's time at the event; -1 if it has not reached the event.
};
struct Item {
  enum class Kind { kWork, kEvent, kHostFunction } kind = Kind::kWork;
  std::int64_t duration = 0;
  Event* event = nullptr;
  void (*function)(void*) = nullptr;
  void* argument = nullptr;
};
struct Stream {
  std::deque<Item> items;
  std::int64_t free_at = 0;  // When the last started work ends.
  bool is_capturing = false;
  bool is_broken = false;  // The capture is invalid.
};
struct Failure {
  int result = 0;
  int after = 0;
};
struct Driver {
  Mutex mutex;
  std::int64_t now PERSEUS_GUARDED_BY(mutex) = 0;
  std::vector<std::unique_ptr<Stream>> streams PERSEUS_GUARDED_BY(mutex);
  Stream legacy PERSEUS_GUARDED_BY(mutex);
  std::set<Event*> events PERSEUS_GUARDED_BY(mutex);
  std::map<std::string, int, std::less<>> calls PERSEUS_GUARDED_BY(mutex);
  std::map<std::string, Failure, std::less<>> failures PERSEUS_GUARDED_BY(mutex);
};

Driver& driver() {
  static Driver the_driver;
  return the_driver;
}
int the_context = 0;
// A thread has no context until it makes a stream or sets one.
thread_local void* current_context = nullptr;
thread_local int capture_mode = 0;  // 0 is the global mode.

// Counts the call and returns its result; 0 is success.
int Enter(const char* entry_point) PERSEUS_REQUIRES(driver().mutex) {
  ++driver().calls[entry_point];
  const auto failure = driver().failures.find(entry_point);
  if (failure == driver().failures.end()) return 0;
  return failure->second.after-- > 0 ? 0 : failure->second.result;
}

// As Enter(), for functions that are forbidden during a capture.
int EnterUnsafe(const char* entry_point) PERSEUS_REQUIRES(driver().mutex) {
  const int failed = Enter(entry_point);
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

// Null if the stream does not exist.
Stream* StreamOf(void* handle) PERSEUS_REQUIRES(driver().mutex) {
  if (handle == nullptr) return &driver().legacy;
  for (const auto& stream : driver().streams) {
    if (stream.get() == handle) return stream.get();
  }
  return nullptr;
}

int Enqueue(void* handle, const Item& item) PERSEUS_REQUIRES(driver().mutex) {
  Stream* const stream = StreamOf(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (stream == &driver().legacy && IsAnyCapturing()) return kCaptureImplicit;
  // New work of an empty queue begins now, not in the past.
  if (stream->items.empty()) stream->free_at = std::max(stream->free_at, driver().now);
  stream->items.push_back(item);
  return 0;
}

[[noreturn]] void Synchronized(const char* entry_point) {
  std::fprintf(stderr, "the client called %s, which waits for the GPU\n", entry_point);
  std::abort();
}

}  // namespace

namespace fake_cuda {

void Reset() {
  const MutexLock lock(driver().mutex);
  driver().now = 0;
  driver().streams.clear();
  driver().legacy = {};
  for (Event* event : driver().events) delete event;
  driver().events.clear();
  driver().calls.clear();
  driver().failures.clear();
}

void* MakeStream() {
  const MutexLock lock(driver().mutex);
  current_context = &the_context;
  return driver().streams.emplace_back(std::make_unique<Stream>()).get();
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
  std::vector<Stream*> streams = {&driver().legacy};
  for (const auto& stream : driver().streams) streams.push_back(stream.get());
  for (Stream* const stream : streams) {
    while (!stream->items.empty()) {
      const Item item = stream->items.front();
      if (stream->free_at + item.duration > until) break;
      stream->free_at += item.duration;
      stream->items.pop_front();
      if (item.kind == Item::Kind::kEvent) item.event->at = stream->free_at;
      if (item.kind != Item::Kind::kHostFunction) continue;
      driver().mutex.unlock();
      item.function(item.argument);
      driver().mutex.lock();
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
  const MutexLock lock(driver().mutex);
  driver().failures[std::string(entry_point)] = {result, after};
}

int Calls(std::string_view entry_point) {
  const MutexLock lock(driver().mutex);
  const auto found = driver().calls.find(entry_point);
  return found == driver().calls.end() ? 0 : found->second;
}

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
  if (const int failed = EnterUnsafe("cuEventCreate"); failed != 0) return failed;
  if (current_context == nullptr) return kInvalidContext;
  *event = *driver().events.insert(new Event).first;
  return 0;
}

int cuEventRecord(void* handle, void* stream) {
  const MutexLock lock(driver().mutex);
  if (const int failed = Enter("cuEventRecord"); failed != 0) return failed;
  auto* event = static_cast<Event*>(handle);
  if (!driver().events.contains(event)) return kInvalidHandle;
  event->is_recorded = true;
  event->at = -1;
  Item item;
  item.kind = Item::Kind::kEvent;
  item.event = event;
  return Enqueue(stream, item);
}

int cuEventQuery(void* handle) {
  const MutexLock lock(driver().mutex);
  if (const int failed = EnterUnsafe("cuEventQuery"); failed != 0) return failed;
  if (current_context == nullptr) return kInvalidContext;
  auto* event = static_cast<Event*>(handle);
  if (!driver().events.contains(event)) return kInvalidHandle;
  return event->is_recorded && event->at < 0 ? kNotReady : 0;
}

int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
  const MutexLock lock(driver().mutex);
  if (const int failed = EnterUnsafe("cuEventElapsedTime"); failed != 0) return failed;
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
  if (const int failed = EnterUnsafe("cuEventDestroy_v2"); failed != 0) return failed;
  auto* event = static_cast<Event*>(handle);
  if (driver().events.erase(event) == 0) return kInvalidHandle;
  // The real driver frees the event after the GPU has passed it.
  for (const auto& stream : driver().streams) {
    std::erase_if(stream->items, [event](const Item& item) { return item.event == event; });
  }
  std::erase_if(driver().legacy.items, [event](const Item& item) { return item.event == event; });
  delete event;
  return 0;
}

int cuLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
  const MutexLock lock(driver().mutex);
  if (const int failed = Enter("cuLaunchHostFunc"); failed != 0) return failed;
  Item item;
  item.kind = Item::Kind::kHostFunction;
  item.function = function;
  item.argument = argument;
  return Enqueue(stream, item);
}

int cuCtxGetCurrent(void** context) {
  const MutexLock lock(driver().mutex);
  if (const int failed = Enter("cuCtxGetCurrent"); failed != 0) return failed;
  *context = current_context;
  return 0;
}

int cuCtxSetCurrent(void* context) {
  const MutexLock lock(driver().mutex);
  if (const int failed = Enter("cuCtxSetCurrent"); failed != 0) return failed;
  current_context = context;
  return 0;
}

int cuStreamIsCapturing(void* handle, int* status) {
  const MutexLock lock(driver().mutex);
  if (const int failed = Enter("cuStreamIsCapturing"); failed != 0) return failed;
  const Stream* const stream = StreamOf(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (stream == &driver().legacy && IsAnyCapturing()) return kCaptureImplicit;
  *status = stream->is_capturing ? 1 : 0;
  return 0;
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  const MutexLock lock(driver().mutex);
  if (const int failed = Enter("cuThreadExchangeStreamCaptureMode"); failed != 0) return failed;
  std::swap(*mode, capture_mode);
  return 0;
}

int cuCtxSynchronize() { Synchronized("cuCtxSynchronize"); }
int cuStreamSynchronize(void*) { Synchronized("cuStreamSynchronize"); }
int cuEventSynchronize(void*) { Synchronized("cuEventSynchronize"); }

}  // extern "C"
