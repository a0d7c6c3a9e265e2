// The memory, the streams and the kernels (kernels.h) that cuda_node.h needs on one GPU.
//
// Not thread-safe, except ReadMailbox().
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/runtime/cuda/driver.h"
#include "perseus/runtime/qualifier/kernels.h"
#include "perseus/runtime/qualifier/measured_node.h"

namespace perseus::qualifier {

// A copy moves one half of a GPU's buffer to the other half of the next GPU's buffer.
inline constexpr std::size_t kCopyBytes = std::size_t{64} << 20;

class CudaGpu {
 public:
  static Result<std::unique_ptr<CudaGpu>> Open(const cuda::Driver& driver, cuda::Device device,
                                               int ordinal, Clock& clock) {
    std::unique_ptr<CudaGpu> gpu(new CudaGpu(driver, device, ordinal, clock));
    PERSEUS_RETURN_IF_ERROR(gpu->Make());
    return gpu;
  }
  ~CudaGpu() {
    if (context_ == nullptr) return;
    static_cast<void>(driver_.SetCurrent(context_));
    // If a kernel does not end, freeing memory would wait forever. When the process ends, the
    // driver frees everything that is left.
    if (!Stop()) return;
    if (work_stream_ != nullptr) static_cast<void>(driver_.StreamDestroy(work_stream_));
    if (probe_stream_ != nullptr) static_cast<void>(driver_.StreamDestroy(probe_stream_));
    if (flag_ != 0) static_cast<void>(driver_.MemFree(flag_));
    if (buffer_ != 0) static_cast<void>(driver_.MemFree(buffer_));
    if (mailbox_ != nullptr) static_cast<void>(driver_.FreeHost(mailbox_));
    if (module_ != nullptr) static_cast<void>(driver_.ModuleUnload(module_));
    static_cast<void>(driver_.PrimaryContextRelease(device_));
  }
  CudaGpu(const CudaGpu&) = delete;
  CudaGpu& operator=(const CudaGpu&) = delete;

  Result<void> MakeCurrent() const {
    return driver_.Check(driver_.SetCurrent(context_), "use a GPU's context");
  }

  // Ends the running load.
  Result<void> Stop() {
    if (!is_running_) return {};
    Word32(kMailboxStop).store(1);
    PERSEUS_RETURN_IF_ERROR(WaitFor(work_stream_, "a load kernel to end"));
    is_running_ = false;
    return {};
  }

  Result<void> Start(Load load) {
    PERSEUS_RETURN_IF_ERROR(MakeCurrent());
    PERSEUS_RETURN_IF_ERROR(Stop());
    if (load == Load::kIdle) return {};
    std::memset(mailbox_, 0, kMailboxBytes);
    notified_ = 0;
    // Uses the stream of the kernel, because work on our streams does not wait for the default
    // stream.
    PERSEUS_RETURN_IF_ERROR(
        driver_.Check(driver_.MemsetD32Async(flag_, 0, 1, work_stream_), "clear a flag"));
    const bool computes = load == Load::kCompute;
    const unsigned blocks = computes ? most_blocks_ : std::min(kBlockedBlocks, most_blocks_);
    std::uint64_t limit = kKernelLimit;
    void* parameters[] = {&mailbox_address_, &flag_, &limit, &buffer_};
    PERSEUS_RETURN_IF_ERROR(
        driver_.Check(driver_.Launch(computes ? compute_ : blocked_, blocks, 1, 1, kThreads, 1, 1,
                                     0, work_stream_, parameters, nullptr),
                      "launch a load kernel"));
    is_running_ = true;
    return WaitUntil([&] { return ReadMailbox().has_value(); }, "the first sample of a kernel");
  }

  struct MailboxSample {
    std::uint64_t time = 0;
    std::uint64_t work = 0;
  };
  // Returns the latest sample, or nullopt if the kernel has not written one yet, or is writing one.
  // The order of these memory reads is fixed, because each read is sequentially consistent.
  std::optional<MailboxSample> ReadMailbox() const {
    const std::uint64_t before = Word64(kMailboxSequence).load();
    const MailboxSample sample{Word64(kMailboxTime).load(), Word64(kMailboxWork).load()};
    if (before % 2 != 0 || Word64(kMailboxSequence).load() != before || sample.work == 0) {
      return std::nullopt;
    }
    return sample;
  }

  // Launches a small kernel after all work on the probe stream. The kernel reports when it has run.
  Result<void> Notify() {
    ++notified_;
    cuda::Address address = mailbox_address_ + kMailboxNotified;
    void* parameters[] = {&address, &notified_};
    return driver_.Check(
        driver_.Launch(notify_, 1, 1, 1, 1, 1, 1, 0, probe_stream_, parameters, nullptr),
        "launch a kernel");
  }
  Result<void> AwaitNotice() {
    return WaitUntil([&] { return Word64(kMailboxNotified).load() == notified_; },
                     "a small kernel");
  }

  // Polls without a system call, so that a launch latency is measured exactly.
  template <typename Condition>
  Result<void> WaitUntil(Condition condition, const char* what) const {
    const Nanoseconds end = clock_.Now() + kLongestWait;
    while (!condition()) {
      if (clock_.Now() <= end) continue;
      // If a kernel failed, its error is the reason.
      for (const cuda::Stream stream : {work_stream_, probe_stream_}) {
        const int code = driver_.StreamQuery(stream);
        if (code != cuda::kNotReady) PERSEUS_RETURN_IF_ERROR(driver_.Check(code, "run a kernel"));
      }
      return FailAs(ErrorKind::kSystem, "{} took longer than {:.0f} s (is the GPU healthy?)", what,
                    ToSeconds(kLongestWait));
    }
    return {};
  }

  cuda::Device device() const { return device_; }
  int ordinal() const { return ordinal_; }
  cuda::Context context() const { return context_; }
  cuda::Stream probe_stream() const { return probe_stream_; }
  cuda::Address buffer() const { return buffer_; }

 private:
  static constexpr Nanoseconds kKernelLimit = 600 * kSecond;
  static constexpr Nanoseconds kLongestWait = 5 * kSecond;
  // A small kernel starts beside a load only if a multiprocessor has no block of the load (seen on
  // an H100). So a load leaves some multiprocessors free.
  static constexpr unsigned kThreads = 1024;  // The threads of a block.
  static constexpr int kFreeMultiprocessors = 4;
  static constexpr unsigned kBlockedBlocks = 16;  // About as many as NCCL uses.

  CudaGpu(const cuda::Driver& driver, cuda::Device device, int ordinal, Clock& clock)
      : driver_(driver), device_(device), ordinal_(ordinal), clock_(clock) {}

  Result<void> Make() {
    const cuda::Driver& f = driver_;
    const std::string text = KernelText();
    constexpr unsigned kMailboxMemory = cuda::kHostPortable | cuda::kHostMapped;
    PERSEUS_RETURN_IF_ERROR(Examine());
    PERSEUS_RETURN_IF_ERROR(f.Try({
        {"make a context", [&] { return f.PrimaryContextRetain(&context_, device_); }},
        {"use a GPU's context", [&] { return f.SetCurrent(context_); }},
        {"compile the kernels", [&] { return f.ModuleLoadData(&module_, text.c_str()); }},
        {"find a kernel", [&] { return f.ModuleGetFunction(&compute_, module_, kComputeKernel); }},
        {"find a kernel", [&] { return f.ModuleGetFunction(&blocked_, module_, kBlockedKernel); }},
        {"find a kernel", [&] { return f.ModuleGetFunction(&notify_, module_, kNotifyKernel); }},
        {"allocate memory on a GPU", [&] { return f.MemAlloc(&flag_, 4); }},
        {"allocate memory on a GPU", [&] { return f.MemAlloc(&buffer_, 2 * kCopyBytes); }},
        {"allocate host memory that a GPU reaches",
         [&] { return f.HostAlloc(&mailbox_, kMailboxBytes, kMailboxMemory); }},
        {"map host memory to a GPU",
         [&] { return f.HostGetDevicePointer(&mailbox_address_, mailbox_, 0); }},
        {"make a stream", [&] { return f.StreamCreate(&work_stream_, cuda::kStreamNonBlocking); }},
        {"make a stream", [&] { return f.StreamCreate(&probe_stream_, cuda::kStreamNonBlocking); }},
    }));
    std::memset(mailbox_, 0, kMailboxBytes);
    // Every kernel runs once now, while no other kernel runs.
    PERSEUS_RETURN_IF_ERROR(Notify());
    PERSEUS_RETURN_IF_ERROR(AwaitNotice());
    for (const Load load : {Load::kCompute, Load::kBlocked, Load::kIdle}) {
      PERSEUS_RETURN_IF_ERROR(Start(load));
    }
    return {};
  }

  Result<int> Attribute(int attribute) const {
    int value = 0;
    PERSEUS_RETURN_IF_ERROR(
        driver_.Check(driver_.DeviceGetAttribute(&value, attribute, device_), "read a GPU"));
    return value;
  }

  // Checks that the kernels can run on this GPU, and determines the number of blocks.
  Result<void> Examine() {
    PERSEUS_ASSIGN_OR_RETURN(const int capability, Attribute(cuda::kComputeCapabilityMajor));
    if (capability < 7) {
      return FailAs(ErrorKind::kSystem, "the kernels need compute capability 7.0 or higher");
    }
    PERSEUS_ASSIGN_OR_RETURN(const int ends_long_kernels, Attribute(cuda::kKernelExecTimeout));
    if (ends_long_kernels != 0) {
      return FailAs(ErrorKind::kSystem,
                    "the driver ends kernels that run for seconds, because the GPU drives a "
                    "display (stop the display server)");
    }
    PERSEUS_ASSIGN_OR_RETURN(const int multiprocessors, Attribute(cuda::kMultiprocessorCount));
    most_blocks_ = static_cast<unsigned>(std::max(1, multiprocessors - kFreeMultiprocessors));
    return {};
  }

  Result<void> WaitFor(cuda::Stream stream, const char* what) const {
    int code = cuda::kNotReady;
    const auto is_done = [&] { return (code = driver_.StreamQuery(stream)) != cuda::kNotReady; };
    PERSEUS_RETURN_IF_ERROR(WaitUntil(is_done, what));
    return driver_.Check(code, "run a kernel");
  }

  // The GPU writes these words, so every access is atomic.
  std::atomic_ref<std::uint64_t> Word64(int offset) const {
    return std::atomic_ref(
        *reinterpret_cast<std::uint64_t*>(static_cast<char*>(mailbox_) + offset));
  }
  std::atomic_ref<std::uint32_t> Word32(int offset) const {
    return std::atomic_ref(
        *reinterpret_cast<std::uint32_t*>(static_cast<char*>(mailbox_) + offset));
  }

  const cuda::Driver& driver_;
  const cuda::Device device_;
  const int ordinal_;
  Clock& clock_;
  unsigned most_blocks_ = 0;
  cuda::Context context_ = nullptr;
  cuda::Module module_ = nullptr;
  cuda::Function compute_ = nullptr, blocked_ = nullptr, notify_ = nullptr;
  cuda::Address flag_ = 0, buffer_ = 0, mailbox_address_ = 0;
  void* mailbox_ = nullptr;
  cuda::Stream work_stream_ = nullptr, probe_stream_ = nullptr;
  bool is_running_ = false;
  std::uint64_t notified_ = 0;
};

}  // namespace perseus::qualifier
