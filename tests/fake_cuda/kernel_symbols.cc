#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "perseus/base/mutex.h"
#include "tests/fake_cuda/call_log.h"
#include "tests/fake_cuda/fake_kernels.h"

namespace fake_kernels {
namespace {

using perseus::Mutex;
using perseus::MutexLock;

constexpr int kInvalid = 1, kInvalidContext = 201, kInvalidHandle = 400, kNotFound = 500,
              kFakeNotReady = 600, kPeerIsEnabled = 704;
constexpr int kMostGpus = 16;

// A queue of work, which a thread runs in order. The host runs ahead of it.
class FakeStream {
 public:
  explicit FakeStream(int gpu) : gpu_(gpu), worker_([this] { Run(); }) {}
  // Waits for all work.
  ~FakeStream() { Push({}); }

  int gpu() const { return gpu_; }  // The GPU of the stream's context.
  bool IsIdle() const { return left_ == 0; }
  void Push(std::function<void()> work) {
    {
      const MutexLock lock(mutex_);
      queue_.push_back(std::move(work));
    }
    ++left_;
    left_.notify_one();
  }

 private:
  // Ends at work without a function.
  void Run() {
    for (;;) {
      left_.wait(0);
      const std::function<void()> work = [this] {
        const MutexLock lock(mutex_);
        std::function<void()> first = std::move(queue_.front());
        queue_.pop_front();
        return first;
      }();
      if (!work) return;
      work();
      --left_;
    }
  }

  int gpu_ = 0;
  Mutex mutex_;
  std::deque<std::function<void()>> queue_ PERSEUS_GUARDED_BY(mutex_);
  std::atomic<int> left_ = 0;  // The work in the queue, and the work that runs.
  std::jthread worker_;
};

struct FakeDriver {
  CallLog calls;
  Mutex mutex;
  std::vector<std::string> uuids;
  GpuTraits traits;
  std::atomic<int> live = 0;
  // The size of each allocation, by address. As with the real driver, host memory has the same
  // address on the host and on a GPU.
  std::map<std::uint64_t, std::size_t> allocations PERSEUS_GUARDED_BY(mutex);
  std::set<std::pair<int, int>> peers PERSEUS_GUARDED_BY(mutex);  // From, to.
  // NCCL: the communicators of one CommInitAll, how many groups are open, and the calls and the
  // first failure in the group.
  std::set<void*> communicators PERSEUS_GUARDED_BY(mutex);
  int group_depth PERSEUS_GUARDED_BY(mutex) = 0;
  std::map<void*, std::tuple<std::size_t, int, int>> group PERSEUS_GUARDED_BY(mutex);
  int group_error PERSEUS_GUARDED_BY(mutex) = 0;
  // The blocks of the load kernels that run on each GPU.
  std::array<std::atomic<int>, kMostGpus> blocks{};
};
FakeDriver& TheDriver() {
  static FakeDriver driver;
  return driver;
}
std::atomic<double> the_rate = 0.001;

// As with the real driver, the driver owns the primary context. A caller only counts its uses.
char primary_contexts[kMostGpus];
// Returns the GPU of a context. -1: none.
int GpuOf(const void* context) {
  for (int gpu = 0; gpu < kMostGpus; ++gpu) {
    if (context == &primary_contexts[gpu]) return gpu;
  }
  return -1;
}
thread_local int current_gpu = -1;

bool IsAllocated(std::uint64_t address, std::size_t bytes) {
  FakeDriver& driver = TheDriver();
  const MutexLock lock(driver.mutex);
  const auto above = driver.allocations.upper_bound(address);
  if (above == driver.allocations.begin()) return false;
  const auto& [begin, size] = *std::prev(above);
  return address + bytes <= begin + size;
}

std::uint64_t Allocate(std::size_t bytes) {
  FakeDriver& driver = TheDriver();
  const MutexLock lock(driver.mutex);
  const auto address = reinterpret_cast<std::uint64_t>(std::calloc(bytes, 1));
  driver.allocations[address] = bytes;
  ++driver.live;
  return address;
}

int Free(std::uint64_t address) {
  FakeDriver& driver = TheDriver();
  const MutexLock lock(driver.mutex);
  if (driver.allocations.erase(address) == 0) return kInvalid;
  std::free(reinterpret_cast<void*>(address));
  --driver.live;
  return 0;
}

template <typename Integer>
std::atomic_ref<Integer> At(std::uint64_t address) {
  return std::atomic_ref(*reinterpret_cast<Integer*>(address));
}

// As on an H100, a small kernel waits as long as every multiprocessor has a block of a load.
void AwaitMultiprocessor(int gpu) {
  const std::atomic<int>& busy = TheDriver().blocks.at(static_cast<std::size_t>(gpu));
  for (int blocks; (blocks = busy) >= TheDriver().traits.multiprocessors;) busy.wait(blocks);
}

// A flag that was not cleared ends the kernel before its first sample.
void RunLoad(int gpu, std::uint64_t mailbox, std::uint64_t flag, int blocks) {
  using std::chrono::steady_clock;
  std::atomic<int>& busy = TheDriver().blocks.at(static_cast<std::size_t>(gpu));
  if (At<std::uint32_t>(flag) != 0) return;
  busy += blocks;
  double work = 0;
  std::uint64_t sequence = 0;
  auto last = steady_clock::now();
  while (At<std::uint32_t>(mailbox) == 0) {
    const auto now = steady_clock::now();
    work += the_rate * static_cast<double>(std::chrono::nanoseconds(now - last).count());
    last = now;
    At<std::uint64_t>(mailbox + 8) = ++sequence;
    At<std::uint64_t>(mailbox + 16) = static_cast<std::uint64_t>(
        std::chrono::nanoseconds(now.time_since_epoch()).count() + 12'345'678);
    At<std::uint64_t>(mailbox + 24) = static_cast<std::uint64_t>(work);
    At<std::uint64_t>(mailbox + 8) = ++sequence;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  At<std::uint32_t>(flag) = 1;
  busy -= blocks;
  busy.notify_all();
}

const char* const kKernels[] = {"perseus_compute", "perseus_blocked", "perseus_notify"};

}  // namespace

void Reset(const std::vector<std::string>& uuids, const GpuTraits& traits) {
  FakeDriver& driver = TheDriver();
  const MutexLock lock(driver.mutex);
  if (driver.live != 0 || !driver.communicators.empty() || driver.group_depth != 0) std::abort();
  driver.uuids = uuids;
  driver.traits = traits;
  driver.calls.Clear();
  driver.peers.clear();
  the_rate = 0.001;
}
void SetRate(double rate) { the_rate = rate; }
void FailOnce(std::string_view entry_point, int code, int after) {
  TheDriver().calls.Fail(entry_point, code, after, 1);
}
int Calls(std::string_view entry_point) { return TheDriver().calls.Calls(entry_point); }
int LiveResources() { return TheDriver().live; }
int LiveCommunicators() {
  const MutexLock lock(TheDriver().mutex);
  return static_cast<int>(TheDriver().communicators.size());
}

}  // namespace fake_kernels

using namespace fake_kernels;

// Each entry point first counts its call. If the call has to fail, it fails.
#define FAKE_ENTER() \
  if (const int code = TheDriver().calls.Enter(__func__); code != 0) return code

extern "C" {

int cuInit(unsigned /*flags*/) {
  FAKE_ENTER();
  return 0;
}
int cuGetErrorName(int code, const char** name) {
  *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
  return 0;
}
int cuDeviceGetCount(int* count) {
  FAKE_ENTER();
  *count = static_cast<int>(TheDriver().uuids.size());
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  FAKE_ENTER();
  *device = ordinal;
  return 0;
}
int cuDeviceGetUuid(unsigned char* uuid, int device) {
  FAKE_ENTER();
  const std::string& text = TheDriver().uuids.at(static_cast<std::size_t>(device));
  std::size_t at = 4;  // After "GPU-".
  for (int i = 0; i < 16; ++i) {
    if (text.at(at) == '-') ++at;
    uuid[i] = static_cast<unsigned char>(std::stoul(text.substr(at, 2), nullptr, 16));
    at += 2;
  }
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int /*device*/) {
  FAKE_ENTER();
  const GpuTraits& traits = TheDriver().traits;
  switch (attribute) {
    case 16:
      *value = traits.multiprocessors;
      return 0;
    case 17:
      *value = traits.ends_long_kernels ? 1 : 0;
      return 0;
    case 75:
      *value = traits.compute_capability;
      return 0;
    default:
      return kInvalid;
  }
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  FAKE_ENTER();
  *context = &primary_contexts[device];
  ++TheDriver().live;
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int /*device*/) {
  FAKE_ENTER();
  --TheDriver().live;
  return 0;
}
int cuCtxSetCurrent(void* context) {
  FAKE_ENTER();
  const int gpu = GpuOf(context);
  if (gpu < 0) return kInvalidContext;
  current_gpu = gpu;
  return 0;
}
int cuModuleLoadData(void** module, const void* image) {
  FAKE_ENTER();
  if (current_gpu < 0) return kInvalidContext;
  // As with the real driver, a module has only the kernels in its text.
  *module = ::strdup(static_cast<const char*>(image));
  ++TheDriver().live;
  return 0;
}
int cuModuleUnload(void* module) {
  FAKE_ENTER();
  std::free(module);
  --TheDriver().live;
  return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  FAKE_ENTER();
  const std::string entry = std::string(".visible .entry ") + name + "(";
  if (std::strstr(static_cast<const char*>(module), entry.c_str()) == nullptr) return kNotFound;
  for (const char* const& known : kKernels) {
    if (std::strcmp(known, name) == 0) *function = const_cast<char**>(&known);
  }
  return 0;
}
int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  FAKE_ENTER();
  if (current_gpu < 0) return kInvalidContext;
  *address = Allocate(bytes);
  return 0;
}
int cuMemFree_v2(unsigned long long address) {
  FAKE_ENTER();
  return Free(address);
}
int cuMemsetD32Async(unsigned long long address, unsigned value, std::size_t count, void* handle) {
  FAKE_ENTER();
  auto& stream = *static_cast<FakeStream*>(handle);
  if (stream.gpu() != current_gpu) return kInvalidHandle;
  if (!IsAllocated(address, sizeof value) || count != 1) return kInvalid;
  stream.Push([address, value] { At<std::uint32_t>(address) = value; });
  return 0;
}
int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  FAKE_ENTER();
  if (current_gpu < 0) return kInvalidContext;
  constexpr unsigned kMapped = 2;
  if ((flags & kMapped) == 0) return kInvalid;
  *memory = reinterpret_cast<void*>(Allocate(bytes));
  return 0;
}
int cuMemFreeHost(void* memory) {
  FAKE_ENTER();
  return Free(reinterpret_cast<std::uint64_t>(memory));
}
int cuMemHostGetDevicePointer_v2(unsigned long long* address, void* memory, unsigned /*flags*/) {
  FAKE_ENTER();
  *address = reinterpret_cast<std::uint64_t>(memory);
  return IsAllocated(*address, 1) ? 0 : kInvalid;
}
int cuStreamCreate(void** stream, unsigned /*flags*/) {
  FAKE_ENTER();
  if (current_gpu < 0) return kInvalidContext;
  *stream = std::make_unique<FakeStream>(current_gpu).release();
  ++TheDriver().live;
  return 0;
}
int cuStreamDestroy_v2(void* stream) {
  FAKE_ENTER();
  const std::unique_ptr<FakeStream> destroyed(static_cast<FakeStream*>(stream));
  --TheDriver().live;
  return 0;
}
int cuStreamQuery(void* stream) {
  FAKE_ENTER();
  return static_cast<FakeStream*>(stream)->IsIdle() ? 0 : kFakeNotReady;
}
int cuLaunchKernel(void* function, unsigned grid_x, unsigned /*grid_y*/, unsigned /*grid_z*/,
                   unsigned block_x, unsigned /*block_y*/, unsigned /*block_z*/,
                   unsigned /*shared_bytes*/, void* handle, void** parameters, void** /*extra*/) {
  FAKE_ENTER();
  auto& stream = *static_cast<FakeStream*>(handle);
  const int gpu = stream.gpu();
  if (gpu != current_gpu) return kInvalidHandle;
  const std::string name = *static_cast<const char* const*>(function);
  const auto first = *static_cast<std::uint64_t*>(parameters[0]);
  const auto second = *static_cast<std::uint64_t*>(parameters[1]);
  if (name == "perseus_notify") {
    if (!IsAllocated(first, sizeof second)) return kInvalid;
    stream.Push([gpu, first, second] {
      AwaitMultiprocessor(gpu);
      At<std::uint64_t>(first) = second;
    });
    return 0;
  }
  // The kernel needs warps 0 and 1.
  if (!IsAllocated(first, 128) || !IsAllocated(second, 4) || block_x < 64) return kInvalid;
  stream.Push([gpu, first, second, blocks = static_cast<int>(grid_x)] {
    RunLoad(gpu, first, second, blocks);
  });
  return 0;
}
int cuMemcpyPeerAsync(unsigned long long to, void* to_context, unsigned long long from,
                      void* from_context, std::size_t bytes, void* handle) {
  FAKE_ENTER();
  if (GpuOf(to_context) < 0 || GpuOf(from_context) < 0) return kInvalidContext;
  for (const std::uint64_t address : {to, from}) {
    if (!IsAllocated(address, bytes)) return kInvalid;
  }
  static_cast<FakeStream*>(handle)->Push(
      [] { std::this_thread::sleep_for(std::chrono::microseconds(200)); });
  return 0;
}
int cuDeviceCanAccessPeer(int* can_access, int device, int peer) {
  FAKE_ENTER();
  *can_access = TheDriver().traits.has_peers && device != peer ? 1 : 0;
  return 0;
}
int cuCtxEnablePeerAccess(void* peer, unsigned flags) {
  FAKE_ENTER();
  const int gpu = GpuOf(peer);
  if (gpu < 0 || gpu == current_gpu) return kInvalidContext;
  if (flags != 0) return kInvalid;
  const MutexLock lock(TheDriver().mutex);
  return TheDriver().peers.emplace(current_gpu, gpu).second ? 0 : kPeerIsEnabled;
}

const char* ncclGetErrorString(int code) {
  return code == kSystemError ? "unhandled system error" : "invalid usage";
}
int ncclCommInitAll(void** communicators, int count, const int* devices) {
  FAKE_ENTER();
  FakeDriver& driver = TheDriver();
  const MutexLock lock(driver.mutex);
  const bool is_valid =
      count > 0 && driver.communicators.empty() &&
      std::set<int>(devices, devices + count).size() == static_cast<std::size_t>(count);
  if (!is_valid) return kInvalidUsage;
  for (int i = 0; i < count; ++i) {
    communicators[i] = &primary_contexts[devices[i]];
    driver.communicators.insert(communicators[i]);
  }
  return 0;
}
int ncclCommAbort(void* communicator) {
  FAKE_ENTER();
  const MutexLock lock(TheDriver().mutex);
  return TheDriver().communicators.erase(communicator) == 1 ? 0 : kInvalidUsage;
}
int ncclGroupStart() {
  FAKE_ENTER();
  const MutexLock lock(TheDriver().mutex);
  ++TheDriver().group_depth;
  return 0;
}
int ncclGroupEnd() {
  FakeDriver& driver = TheDriver();
  const int failed = driver.calls.Enter(__func__);
  const MutexLock lock(driver.mutex);
  if (driver.group_depth == 0) return kInvalidUsage;
  if (--driver.group_depth > 0) return failed;
  const auto group = std::exchange(driver.group, {});
  const int error = std::exchange(driver.group_error, 0);
  if (failed != 0 || error != 0) return failed != 0 ? failed : error;
  if (group.empty()) return 0;
  // Every GPU takes part, with the same arguments.
  const bool are_equal = std::ranges::all_of(
      group, [&](const auto& call) { return call.second == group.begin()->second; });
  return are_equal && group.size() == driver.communicators.size() ? 0 : kInvalidUsage;
}
int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int operation,
                  void* communicator, void* stream) {
  FakeDriver& driver = TheDriver();
  int code = driver.calls.Enter(__func__);
  const MutexLock lock(driver.mutex);
  constexpr int kDataTypes = 10, kOperations = 5;  // ncclInt8 … ncclBfloat16, ncclSum … ncclAvg.
  const bool is_valid = from != nullptr && to != nullptr && stream != nullptr && type >= 0 &&
                        type < kDataTypes && operation >= 0 && operation < kOperations &&
                        driver.communicators.contains(communicator) && driver.group_depth > 0;
  // A communicator is in a group once.
  if (code == 0 && (!is_valid || driver.group.contains(communicator))) code = kInvalidUsage;
  if (code == 0) driver.group[communicator] = {count, type, operation};
  if (code != 0 && driver.group_depth > 0) driver.group_error = code;
  return code;
}

}  // extern "C"
