#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "perseus/base/mutex.h"
#include "tests/fake_cuda/fake_kernels.h"

namespace fake_kernels {
namespace {

using perseus::Mutex;
using perseus::MutexLock;

constexpr int kInvalid = 1, kInvalidContext = 201, kInvalidHandle = 400, kNotFound = 500,
              kFakeNotReady = 600, kPeerIsEnabled = 704;
constexpr int kMostGpus = 16;
constexpr std::size_t kBacking = 128;  // The bytes of an allocation that the host's side uses.

// The kernel of a stream. At most one kernel runs.
struct FakeStream {
  int gpu = 0;  // The GPU of the stream's context.
  std::jthread kernel;
  std::atomic<bool> is_running = false;
};

struct FakeAllocation {
  std::size_t bytes = 0;
  alignas(8) std::array<char, kBacking> memory = {};
};

struct FakeDriver {
  Mutex mutex;
  std::vector<std::string> uuids;
  GpuTraits traits;
  std::map<std::string, int, std::less<>> calls PERSEUS_GUARDED_BY(mutex);
  // The code, and the number of the call.
  std::map<std::string, std::pair<int, int>, std::less<>> failures PERSEUS_GUARDED_BY(mutex);
  int live PERSEUS_GUARDED_BY(mutex) = 0;
  // By device address. Kernels keep the memory that they use.
  std::map<std::uint64_t, std::shared_ptr<FakeAllocation>> allocations PERSEUS_GUARDED_BY(mutex);
  std::uint64_t next_address PERSEUS_GUARDED_BY(mutex) = 0x7f00'0000'0000;
  std::set<std::pair<int, int>> peers PERSEUS_GUARDED_BY(mutex);  // From, to.
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
  const auto* const found = std::find_if(
      std::begin(primary_contexts), std::end(primary_contexts),
      [context](const char& primary) { return static_cast<const void*>(&primary) == context; });
  return found == std::end(primary_contexts)
             ? -1
             : static_cast<int>(found - std::begin(primary_contexts));
}
thread_local int current_gpu = -1;

// Counts the call, and returns the code with which it fails.
int Count(const char* name) {
  FakeDriver& driver = TheDriver();
  const MutexLock lock(driver.mutex);
  const int number = driver.calls[name]++;
  const auto failure = driver.failures.find(name);
  return failure != driver.failures.end() && failure->second.second == number
             ? failure->second.first
             : 0;
}

void AddLive(int change) {
  const MutexLock lock(TheDriver().mutex);
  TheDriver().live += change;
}

// Returns the memory of the allocation at this address, and the offset in the allocation. Null if
// no such allocation exists.
std::pair<std::shared_ptr<FakeAllocation>, std::size_t> MemoryAt(std::uint64_t address) {
  FakeDriver& driver = TheDriver();
  const MutexLock lock(driver.mutex);
  const auto above = driver.allocations.upper_bound(address);
  if (above == driver.allocations.begin()) return {};
  const auto& [begin, allocation] = *std::prev(above);
  if (address >= begin + allocation->bytes) return {};
  return {allocation, address - begin};
}

std::uint64_t Allocate(std::size_t bytes) {
  FakeDriver& driver = TheDriver();
  const MutexLock lock(driver.mutex);
  const std::uint64_t address = driver.next_address;
  driver.next_address += (bytes / 4096 + 2) * 4096;
  driver.allocations[address] = std::make_shared<FakeAllocation>();
  driver.allocations[address]->bytes = bytes;
  ++driver.live;
  return address;
}

// Frees the allocation. Returns whether it existed.
bool Free(std::uint64_t address) {
  FakeDriver& driver = TheDriver();
  const MutexLock lock(driver.mutex);
  if (driver.allocations.erase(address) == 0) return false;
  --driver.live;
  return true;
}

std::atomic_ref<std::uint64_t> Word(FakeAllocation& mailbox, std::size_t offset) {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(mailbox.memory.data() + offset));
}

void RunLoad(FakeStream& stream, FakeAllocation& mailbox, int blocks) {
  using std::chrono::steady_clock;
  std::atomic<int>& busy = TheDriver().blocks.at(static_cast<std::size_t>(stream.gpu));
  double work = 0;
  std::uint64_t sequence = 0;
  auto last = steady_clock::now();
  while ((Word(mailbox, 0).load() & 0xffffffff) == 0) {
    const auto now = steady_clock::now();
    work += the_rate * static_cast<double>(std::chrono::nanoseconds(now - last).count());
    last = now;
    Word(mailbox, 8) = ++sequence;
    Word(mailbox, 16) = static_cast<std::uint64_t>(
        std::chrono::nanoseconds(now.time_since_epoch()).count() + 12'345'678);
    Word(mailbox, 24) = static_cast<std::uint64_t>(work);
    Word(mailbox, 8) = ++sequence;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  busy -= blocks;
  stream.is_running = false;
}

const char* const kKernels[] = {"perseus_compute", "perseus_blocked", "perseus_notify"};

}  // namespace

void Reset(const std::vector<std::string>& uuids, const GpuTraits& traits) {
  FakeDriver& driver = TheDriver();
  const MutexLock lock(driver.mutex);
  if (driver.live != 0) std::abort();
  driver.uuids = uuids;
  driver.traits = traits;
  driver.calls.clear();
  driver.failures.clear();
  driver.peers.clear();
  the_rate = 0.001;
}
void SetRate(double rate) { the_rate = rate; }
void FailOnce(std::string_view entry_point, int code, int after) {
  const MutexLock lock(TheDriver().mutex);
  TheDriver().failures[std::string(entry_point)] = {code, after};
}
int Calls(std::string_view entry_point) {
  const MutexLock lock(TheDriver().mutex);
  const auto found = TheDriver().calls.find(entry_point);
  return found == TheDriver().calls.end() ? 0 : found->second;
}
int LiveResources() {
  const MutexLock lock(TheDriver().mutex);
  return TheDriver().live;
}

}  // namespace fake_kernels

using namespace fake_kernels;

// Each entry point first counts its call. If the call has to fail, it fails.
#define FAKE_ENTER(name) \
  if (const int code = Count(name); code != 0) return code

extern "C" {

int cuInit(unsigned /*flags*/) {
  FAKE_ENTER("cuInit");
  return 0;
}
int cuGetErrorName(int code, const char** name) {
  *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
  return 0;
}
int cuDeviceGetCount(int* count) {
  FAKE_ENTER("cuDeviceGetCount");
  *count = static_cast<int>(TheDriver().uuids.size());
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  FAKE_ENTER("cuDeviceGet");
  *device = ordinal;
  return 0;
}
int cuDeviceGetUuid(unsigned char* uuid, int device) {
  FAKE_ENTER("cuDeviceGetUuid");
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
  FAKE_ENTER("cuDeviceGetAttribute");
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
  FAKE_ENTER("cuDevicePrimaryCtxRetain");
  *context = &primary_contexts[device];
  AddLive(1);
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int /*device*/) {
  FAKE_ENTER("cuDevicePrimaryCtxRelease_v2");
  AddLive(-1);
  return 0;
}
int cuCtxSetCurrent(void* context) {
  FAKE_ENTER("cuCtxSetCurrent");
  const int gpu = GpuOf(context);
  if (gpu < 0) return kInvalidContext;
  current_gpu = gpu;
  return 0;
}
int cuModuleLoadData(void** module, const void* image) {
  FAKE_ENTER("cuModuleLoadData");
  if (current_gpu < 0) return kInvalidContext;
  // As with the real driver, a module has only the kernels in its text.
  *module = ::strdup(static_cast<const char*>(image));
  AddLive(1);
  return 0;
}
int cuModuleUnload(void* module) {
  FAKE_ENTER("cuModuleUnload");
  std::free(module);
  AddLive(-1);
  return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  FAKE_ENTER("cuModuleGetFunction");
  const std::string entry = std::string(".visible .entry ") + name + "(";
  if (std::strstr(static_cast<const char*>(module), entry.c_str()) == nullptr) return kNotFound;
  for (const char* const& known : kKernels) {
    if (std::strcmp(known, name) == 0) *function = const_cast<char**>(&known);
  }
  return 0;
}
int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  FAKE_ENTER("cuMemAlloc_v2");
  if (current_gpu < 0) return kInvalidContext;
  *address = Allocate(bytes);
  return 0;
}
int cuMemFree_v2(unsigned long long address) {
  FAKE_ENTER("cuMemFree_v2");
  return Free(address) ? 0 : kInvalid;
}
int cuMemsetD32Async(unsigned long long address, unsigned value, std::size_t count, void* handle) {
  FAKE_ENTER("cuMemsetD32Async");
  if (static_cast<FakeStream*>(handle)->gpu != current_gpu) return kInvalidHandle;
  const auto [memory, offset] = MemoryAt(address);
  if (!memory || offset + count * sizeof value > memory->memory.size()) return kInvalid;
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(memory->memory.data() + offset + i * sizeof value, &value, sizeof value);
  }
  return 0;
}
int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  FAKE_ENTER("cuMemHostAlloc");
  if (current_gpu < 0) return kInvalidContext;
  constexpr unsigned kMapped = 2;
  if (bytes > kBacking || (flags & kMapped) == 0) return kInvalid;
  *memory = MemoryAt(Allocate(bytes)).first->memory.data();
  return 0;
}
// Returns the device address of an allocation of the host. 0: this is no allocation.
static std::uint64_t AddressOf(const void* memory) {
  const MutexLock lock(TheDriver().mutex);
  for (const auto& [address, allocation] : TheDriver().allocations) {
    if (allocation->memory.data() == memory) return address;
  }
  return 0;
}
int cuMemFreeHost(void* memory) {
  FAKE_ENTER("cuMemFreeHost");
  return Free(AddressOf(memory)) ? 0 : kInvalid;
}
int cuMemHostGetDevicePointer_v2(unsigned long long* address, void* memory, unsigned /*flags*/) {
  FAKE_ENTER("cuMemHostGetDevicePointer_v2");
  *address = AddressOf(memory);
  return *address == 0 ? kInvalid : 0;
}
int cuStreamCreate(void** stream, unsigned /*flags*/) {
  FAKE_ENTER("cuStreamCreate");
  if (current_gpu < 0) return kInvalidContext;
  auto made = std::make_unique<FakeStream>();
  made->gpu = current_gpu;
  *stream = made.release();
  AddLive(1);
  return 0;
}
int cuStreamDestroy_v2(void* stream) {
  FAKE_ENTER("cuStreamDestroy_v2");
  const std::unique_ptr<FakeStream> destroyed(static_cast<FakeStream*>(stream));
  AddLive(-1);
  return 0;
}
int cuStreamQuery(void* stream) {
  FAKE_ENTER("cuStreamQuery");
  return static_cast<FakeStream*>(stream)->is_running ? kFakeNotReady : 0;
}
int cuLaunchKernel(void* function, unsigned grid_x, unsigned /*grid_y*/, unsigned /*grid_z*/,
                   unsigned block_x, unsigned /*block_y*/, unsigned /*block_z*/,
                   unsigned /*shared_bytes*/, void* handle, void** parameters, void** /*extra*/) {
  FAKE_ENTER("cuLaunchKernel");
  auto& stream = *static_cast<FakeStream*>(handle);
  if (stream.gpu != current_gpu) return kInvalidHandle;
  const std::string name = *static_cast<const char* const*>(function);
  const auto [memory, offset] = MemoryAt(*static_cast<std::uint64_t*>(parameters[0]));
  if (!memory) return kInvalid;
  const GpuTraits& traits = TheDriver().traits;
  std::atomic<int>& busy = TheDriver().blocks.at(static_cast<std::size_t>(stream.gpu));
  if (name == "perseus_notify") {
    if (busy < traits.multiprocessors)
      Word(*memory, offset) = *static_cast<std::uint64_t*>(parameters[1]);
    return 0;
  }
  // The kernel needs warps 0 and 1. No second kernel may wait behind it.
  if (block_x < 64 || stream.is_running) return kInvalid;
  const int blocks = static_cast<int>(grid_x);
  stream.is_running = true;
  busy += blocks;
  stream.kernel =
      std::jthread([&stream, mailbox = memory, blocks] { RunLoad(stream, *mailbox, blocks); });
  return 0;
}
int cuMemcpyPeerAsync(unsigned long long to, void* to_context, unsigned long long from,
                      void* from_context, std::size_t bytes, void* /*stream*/) {
  FAKE_ENTER("cuMemcpyPeerAsync");
  if (GpuOf(to_context) < 0 || GpuOf(from_context) < 0) return kInvalidContext;
  for (const std::uint64_t address : {to, from}) {
    const auto [memory, offset] = MemoryAt(address);
    if (!memory || offset + bytes > memory->bytes) return kInvalid;
  }
  return 0;
}
int cuDeviceCanAccessPeer(int* can_access, int device, int peer) {
  FAKE_ENTER("cuDeviceCanAccessPeer");
  *can_access = TheDriver().traits.has_peers && device != peer ? 1 : 0;
  return 0;
}
int cuCtxEnablePeerAccess(void* peer, unsigned flags) {
  FAKE_ENTER("cuCtxEnablePeerAccess");
  const int gpu = GpuOf(peer);
  if (gpu < 0 || gpu == current_gpu) return kInvalidContext;
  if (flags != 0) return kInvalid;
  const MutexLock lock(TheDriver().mutex);
  return TheDriver().peers.emplace(current_gpu, gpu).second ? 0 : kPeerIsEnabled;
}

}  // extern "C"
