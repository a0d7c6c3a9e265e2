#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/fake_cuda/fake_kernels.h"

namespace fake_kernels {
namespace {

constexpr int kNotFound = 500, kFakeNotReady = 600, kInvalid = 1;

struct FakeStream {
  std::jthread kernel;
  std::atomic<bool> is_running = false;
};

struct FakeDriver {
  std::mutex mutex;
  std::vector<std::string> uuids;
  std::map<std::string, int, std::less<>> calls;
  std::map<std::string, std::pair<int, int>, std::less<>> failures;  // The code, and which call.
  int live = 0;
};
FakeDriver& TheDriver() {
  static FakeDriver driver;
  return driver;
}
std::atomic<double> the_rate = 0.001;

// Counts the call, and returns the code with which it fails.
int Count(const char* name) {
  FakeDriver& driver = TheDriver();
  const std::lock_guard lock(driver.mutex);
  const int number = driver.calls[name]++;
  const auto failure = driver.failures.find(name);
  return failure != driver.failures.end() && failure->second.second == number
             ? failure->second.first
             : 0;
}

void AddLive(int change) {
  const std::lock_guard lock(TheDriver().mutex);
  TheDriver().live += change;
}

std::atomic_ref<std::uint64_t> Word(std::uint64_t mailbox, std::uint64_t offset) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a device address of this fake is a host address.
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(mailbox + offset));
}

void RunLoad(FakeStream& stream, std::uint64_t mailbox) {
  using std::chrono::steady_clock;
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
  stream.is_running = false;
}

const char* const kKernels[] = {"perseus_compute", "perseus_memory", "perseus_blocked",
                                "perseus_notify"};

}  // namespace

void Reset(const std::vector<std::string>& uuids) {
  FakeDriver& driver = TheDriver();
  const std::lock_guard lock(driver.mutex);
  if (driver.live != 0) std::abort();
  driver.uuids = uuids;
  driver.calls.clear();
  driver.failures.clear();
  the_rate = 0.001;
}
void SetRate(double rate) { the_rate = rate; }
void FailOnce(std::string_view entry_point, int code, int after) {
  const std::lock_guard lock(TheDriver().mutex);
  TheDriver().failures[std::string(entry_point)] = {code, after};
}
int Calls(std::string_view entry_point) {
  const std::lock_guard lock(TheDriver().mutex);
  const auto found = TheDriver().calls.find(entry_point);
  return found == TheDriver().calls.end() ? 0 : found->second;
}
int LiveResources() {
  const std::lock_guard lock(TheDriver().mutex);
  return TheDriver().live;
}

}  // namespace fake_kernels

using namespace fake_kernels;

// Each entry point counts its call first, and fails if it has to.
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
  *value = attribute == 75 ? 8 : 108;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int /*device*/) {
  FAKE_ENTER("cuDevicePrimaryCtxRetain");
  // As with the driver, the primary context is the driver's own. A caller only counts.
  static char primary = 0;
  *context = &primary;
  AddLive(1);
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int /*device*/) {
  FAKE_ENTER("cuDevicePrimaryCtxRelease_v2");
  AddLive(-1);
  return 0;
}
int cuCtxSetCurrent(void* /*context*/) {
  FAKE_ENTER("cuCtxSetCurrent");
  return 0;
}
int cuModuleLoadData(void** module, const void* image) {
  FAKE_ENTER("cuModuleLoadData");
  // As the driver, it knows only kernels that the text has.
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
int cuMemAlloc_v2(unsigned long long* address, std::size_t /*bytes*/) {
  FAKE_ENTER("cuMemAlloc_v2");
  *address = reinterpret_cast<unsigned long long>(std::malloc(64));
  AddLive(1);
  return 0;
}
int cuMemFree_v2(unsigned long long address) {
  FAKE_ENTER("cuMemFree_v2");
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  std::free(reinterpret_cast<void*>(address));
  AddLive(-1);
  return 0;
}
int cuMemsetD32_v2(unsigned long long /*address*/, unsigned /*value*/, std::size_t /*count*/) {
  FAKE_ENTER("cuMemsetD32_v2");
  return 0;
}
int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
  FAKE_ENTER("cuMemHostAlloc");
  *memory = std::aligned_alloc(64, bytes);
  AddLive(1);
  return 0;
}
int cuMemFreeHost(void* memory) {
  FAKE_ENTER("cuMemFreeHost");
  std::free(memory);
  AddLive(-1);
  return 0;
}
int cuMemHostGetDevicePointer_v2(unsigned long long* address, void* memory, unsigned /*flags*/) {
  FAKE_ENTER("cuMemHostGetDevicePointer_v2");
  *address = reinterpret_cast<unsigned long long>(memory);
  return 0;
}
int cuStreamCreate(void** stream, unsigned /*flags*/) {
  FAKE_ENTER("cuStreamCreate");
  *stream = new FakeStream;
  AddLive(1);
  return 0;
}
int cuStreamDestroy_v2(void* stream) {
  FAKE_ENTER("cuStreamDestroy_v2");
  delete static_cast<FakeStream*>(stream);
  AddLive(-1);
  return 0;
}
int cuStreamQuery(void* stream) {
  FAKE_ENTER("cuStreamQuery");
  return static_cast<FakeStream*>(stream)->is_running ? kFakeNotReady : 0;
}
int cuLaunchKernel(void* function, unsigned /*grid_x*/, unsigned /*grid_y*/, unsigned /*grid_z*/,
                   unsigned block_x, unsigned /*block_y*/, unsigned /*block_z*/,
                   unsigned /*shared_bytes*/, void* handle, void** parameters, void** /*extra*/) {
  FAKE_ENTER("cuLaunchKernel");
  const std::string name = *static_cast<const char* const*>(function);
  const std::uint64_t first = *static_cast<std::uint64_t*>(parameters[0]);
  if (name == "perseus_notify") {
    Word(first, 0) = *static_cast<std::uint64_t*>(parameters[1]);
    return 0;
  }
  auto& stream = *static_cast<FakeStream*>(handle);
  // The kernel needs warps 0 and 1, and no second one may wait behind it.
  if (block_x < 64 || stream.is_running) return kInvalid;
  stream.is_running = true;
  stream.kernel = std::jthread([&stream, first] { RunLoad(stream, first); });
  return 0;
}
int cuLaunchHostFunc(void* /*stream*/, void (*function)(void*), void* argument) {
  FAKE_ENTER("cuLaunchHostFunc");
  function(argument);
  return 0;
}
int cuMemcpyPeerAsync(unsigned long long /*to*/, void* /*to_context*/, unsigned long long /*from*/,
                      void* /*from_context*/, std::size_t /*bytes*/, void* /*stream*/) {
  FAKE_ENTER("cuMemcpyPeerAsync");
  return 0;
}

}  // extern "C"
