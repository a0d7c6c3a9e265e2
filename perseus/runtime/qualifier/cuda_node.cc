#include "perseus/runtime/qualifier/cuda_node.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <thread>
#include <utility>

#include "perseus/runtime/cuda/driver.h"
#include "perseus/runtime/qualifier/cuda_gpu.h"

namespace perseus::qualifier {
namespace {

using device::Control;
using device::DeviceResult;
using device::Setting;

constexpr Nanoseconds kBetweenSamples = 50 * kMicrosecond;
constexpr Nanoseconds kBetweenClockReadings = 200 * kMicrosecond;
constexpr Nanoseconds kClockSettles = 200 * kMillisecond;
constexpr std::size_t kReducedFloats = std::size_t{4} << 20;

// Calls act(i) for each i below `count`, each call on its own thread. Returns the failure with the
// lowest i.
template <typename Act>
DeviceResult<void> OnThreads(std::size_t count, Act act) {
  std::vector<DeviceResult<void>> done(count);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back([&, i] { done[i] = act(i); });
    }
  }
  for (DeviceResult<void>& one : done) PERSEUS_RETURN_IF_ERROR(std::move(one));
  return {};
}

class CudaNode final : public MeasuredNode {
 public:
  explicit CudaNode(const std::vector<device::Device*>& devices) {
    devices_ = devices;
    const auto opened = Open();
    if (opened) return;
    why_no_kernels_ = opened.error().Message();
    CloseCollectives();
    gpus_.clear();
  }
  ~CudaNode() override { CloseCollectives(); }

  Clock& clock() override { return clock_; }

  std::string WhyNot(Load load) const override {
    return load == Load::kIdle ? "" : why_no_kernels_;
  }
  std::string WhyNot(Operation operation) const override {
    if (!why_no_kernels_.empty()) return why_no_kernels_;
    std::string why = MeasuredNode::WhyNot(operation);
    if (!why.empty()) return why;
    if (operation == Operation::kCopy) return why_no_copies_;
    return operation == Operation::kCollective ? why_no_collectives_ : "";
  }

  Result<void> Run(int gpu, Load load) override {
    if (!gpus_.empty()) return gpus_[static_cast<std::size_t>(gpu)]->Start(load);
    if (load == Load::kIdle) return {};
    return FailAs(ErrorKind::kSystem, "{}", why_no_kernels_);
  }

  DeviceResult<std::vector<SwitchRecord>> Record(int gpus, const std::optional<Setting>& setting,
                                                 Nanoseconds before, Nanoseconds after) override {
    std::vector<SwitchRecord> records(static_cast<std::size_t>(gpus));
    std::atomic<Nanoseconds> until = Clock::kNever;
    const Nanoseconds call_at = clock_.Now() + before;
    DeviceResult<void> set, sampled;
    {
      const std::jthread setter([&] {
        set = OnThreads(records.size(), [&](std::size_t i) -> DeviceResult<void> {
          Sleep(clock_, call_at - clock_.Now());
          records[i].call_begin = clock_.Now();
          DeviceResult<void> applied;
          if (setting) applied = devices_[i]->Apply(Control::kSmClock, *setting);
          records[i].call_end = clock_.Now();
          return applied;
        });
        until = clock_.Now() + after;
      });
      sampled = OnThreads(records.size(), [&](std::size_t i) {
        return gpus_.empty() ? SampleClock(*devices_[i], until, records[i].samples)
                             : SampleKernel(*gpus_[i], until, records[i].samples);
      });
    }
    if (!set) return Fail(set);
    if (!sampled) return Fail(sampled);
    return records;
  }

  DeviceResult<GpuReadings> Read(Nanoseconds duration) override {
    const Nanoseconds until = clock_.Now() + duration;
    GpuReadings readings(devices_.size());
    PERSEUS_RETURN_IF_ERROR(OnThreads(devices_.size(), [&](std::size_t i) -> DeviceResult<void> {
      while (clock_.Now() < until) {
        PERSEUS_ASSIGN_OR_RETURN(device::Telemetry telemetry, devices_[i]->Read());
        readings[i].push_back(std::move(telemetry));
        Sleep(clock_, kBetweenReadings);
      }
      return {};
    }));
    return readings;
  }

  Result<Timing> Time(Operation operation, const Disturbance& disturbance,
                      Nanoseconds duration) override {
    if (gpus_.empty()) return FailAs(ErrorKind::kSystem, "{}", why_no_kernels_);
    const bool has_load = operation != Operation::kCopy && operation != Operation::kCollective;
    PERSEUS_RETURN_IF_ERROR(RunOnAll(has_load ? Load::kCompute : Load::kIdle));
    auto timed = TimeUnder(operation, disturbance, duration);
    PERSEUS_RETURN_IF_ERROR(RunOnAll(Load::kIdle));
    return timed;
  }

 private:
  Result<void> Open() {
    PERSEUS_ASSIGN_OR_RETURN(driver_, cuda::LoadForKernels());
    for (device::Device* device : devices_) PERSEUS_RETURN_IF_ERROR(Add(device->info().uuid));
    OpenCopies();
    return OpenCollectives();
  }

  // Samples the work without kernels: the work is the integral of the clock that the driver
  // reports.
  DeviceResult<void> SampleClock(device::Device& device, const std::atomic<Nanoseconds>& until,
                                 std::vector<WorkSample>& samples) {
    double work = 0;
    while (clock_.Now() < until.load()) {
      const Nanoseconds at = clock_.Now();
      PERSEUS_ASSIGN_OR_RETURN(const int mhz, device.ReadSmClock());
      if (!samples.empty()) work += static_cast<double>(at - samples.back().at) * mhz;
      samples.push_back({at, work});
      Sleep(clock_, kBetweenClockReadings);
    }
    return {};
  }

  // Samples the work of a kernel. The samples of an idle GPU show that it does no work.
  DeviceResult<void> SampleKernel(const CudaGpu& gpu, const std::atomic<Nanoseconds>& until,
                                  std::vector<WorkSample>& samples) {
    std::optional<Nanoseconds> offset;  // The offset from the GPU's timer to our clock.
    std::uint64_t last = 0;
    while (clock_.Now() < until.load()) {
      const auto sample = gpu.ReadMailbox();
      const Nanoseconds seen = clock_.Now();
      if (sample && sample->time > last) {
        last = sample->time;
        const auto time = static_cast<Nanoseconds>(sample->time);
        // A sample is seen some time after it was written. The shortest of these delays gives the
        // best estimate.
        offset = std::min(offset.value_or(seen - time), seen - time);
        samples.push_back({time, static_cast<double>(sample->work)});
      }
      Sleep(clock_, kBetweenSamples);
    }
    for (WorkSample& sample : samples) sample.at += *offset;
    return {};
  }

  Result<void> Add(const std::string& uuid) {
    int count = 0;
    PERSEUS_RETURN_IF_ERROR(driver_.Check(driver_.DeviceGetCount(&count), "count GPUs"));
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      cuda::Device device = 0;
      cuda::Uuid found{};
      PERSEUS_RETURN_IF_ERROR(driver_.Check(driver_.DeviceGet(&device, ordinal), "find a GPU"));
      PERSEUS_RETURN_IF_ERROR(
          driver_.Check(driver_.DeviceGetUuid(&found, device), "identify a GPU"));
      if (cuda::Name(found) != uuid) continue;
      PERSEUS_ASSIGN_OR_RETURN(auto gpu, CudaGpu::Open(driver_, device, ordinal, clock_));
      gpus_.push_back(std::move(gpu));
      return {};
    }
    return FailAs(ErrorKind::kSystem,
                  "CUDA does not show {} (does CUDA_VISIBLE_DEVICES or a container hide it?)",
                  uuid);
  }

  // Lets each GPU access the memory of the next GPU. If this is not possible, the driver copies
  // through the host's memory, as it does for a training job.
  void OpenCopies() {
    for (std::size_t i = 0; i < gpus_.size() && gpus_.size() > 1; ++i) {
      const CudaGpu& from = *gpus_[i];
      const CudaGpu& to = *gpus_[(i + 1) % gpus_.size()];
      if (const auto connected = Connect(from, to); !connected) {
        why_no_copies_ = connected.error().Message();
      }
    }
  }

  Result<void> Connect(const CudaGpu& from, const CudaGpu& to) const {
    int can_access = 0;
    PERSEUS_RETURN_IF_ERROR(
        driver_.Check(driver_.CanAccessPeer(&can_access, from.device(), to.device()),
                      "ask whether a GPU reaches the next one"));
    if (can_access == 0) return {};
    PERSEUS_RETURN_IF_ERROR(from.MakeCurrent());
    const int code = driver_.EnablePeerAccess(to.context(), 0);
    if (code == cuda::kPeerAccessAlreadyEnabled) return {};
    return driver_.Check(code, "let a GPU reach the next one");
  }

  // Runs an all-reduce, because NCCL connects the GPUs only at the first collective. Fails if a GPU
  // is not usable afterwards. If NCCL fails but the GPUs are usable, everything else can still be
  // measured.
  Result<void> OpenCollectives() {
    if (gpu_count() < 2) return {};
    const auto opened = TryCollective();
    if (opened) return {};
    why_no_collectives_ = opened.error().Message();
    CloseCollectives();
    return AwaitAll();
  }

  Result<void> TryCollective() {
    PERSEUS_ASSIGN_OR_RETURN(nccl_, cuda::LoadNccl());
    std::vector<int> ordinals;
    for (const auto& gpu : gpus_) ordinals.push_back(gpu->ordinal());
    std::vector<void*> communicators(gpus_.size());
    PERSEUS_RETURN_IF_ERROR(nccl_.Check(
        nccl_.CommInitAll(communicators.data(), gpu_count(), ordinals.data()), "connect the GPUs"));
    communicators_ = std::move(communicators);
    PERSEUS_RETURN_IF_ERROR(ReduceAll());
    return AwaitAll();
  }

  // Aborts the communicators. Destroying them instead would wait for collectives that may hang.
  void CloseCollectives() {
    for (void* communicator : communicators_) static_cast<void>(nccl_.CommAbort(communicator));
    communicators_.clear();
  }

  // Times the operation. If there are no changes, each of the two clocks applies for half of the
  // time.
  Result<Timing> TimeUnder(Operation operation, const Disturbance& disturbance,
                           Nanoseconds duration) {
    const bool is_quiet = disturbance.change_period == 0 && disturbance.first_mhz != 0;
    if (!is_quiet) return TimeBeside(operation, disturbance, duration);
    double sum = 0;
    for (const int mhz : {disturbance.first_mhz, disturbance.second_mhz}) {
      PERSEUS_RETURN_IF_ERROR(LockAll(mhz));
      Sleep(clock(), kClockSettles);
      PERSEUS_ASSIGN_OR_RETURN(const auto half, TimeBeside(operation, disturbance, duration / 2));
      sum += half.mean_ns;
    }
    return Timing{.mean_ns = sum / 2, .changes_per_s = 0};
  }

  Result<Timing> TimeBeside(Operation operation, const Disturbance& disturbance,
                            Nanoseconds duration) {
    std::atomic<std::uint32_t> is_over = 0;
    std::atomic<std::int64_t> changes = 0;
    DeviceResult<void> disturbed;
    std::jthread disturber([&] {
      const double reads_per_s = disturbance.reads_per_s;
      const Nanoseconds read_period = reads_per_s > 0 ? ToNanoseconds(1 / reads_per_s) : 0;
      disturbed = OnThreads(2 * devices_.size(), [&](std::size_t i) {
        device::Device& device = *devices_[i / 2];
        bool is_second = true;  // A measurement without changes ends at the second clock.
        const auto change = [&]() -> DeviceResult<void> {
          is_second = !is_second;
          const int mhz = is_second ? disturbance.second_mhz : disturbance.first_mhz;
          PERSEUS_RETURN_IF_ERROR(device.Apply(Control::kSmClock, Setting{mhz, mhz}));
          ++changes;
          return {};
        };
        const auto read = [&]() -> DeviceResult<void> {
          PERSEUS_RETURN_IF_ERROR(device.Read());
          return {};
        };
        return i % 2 == 0 ? Periodically(disturbance.change_period, is_over, change)
                          : Periodically(read_period, is_over, read);
      });
    });
    const Nanoseconds begin = clock().Now();
    const auto mean_ns = Repeat(operation, duration);
    const Nanoseconds spent = std::max<Nanoseconds>(1, clock().Now() - begin);
    is_over = 1;
    WakeAll(is_over);
    disturber.join();
    if (!disturbed) return Fail(disturbed);
    if (!mean_ns) return Fail(mean_ns);
    return Timing{.mean_ns = *mean_ns,
                  .changes_per_s = static_cast<double>(changes.load()) / ToSeconds(spent)};
  }

  // Calls `act` once a period until `is_over`. If a call takes longer than a period, skips the
  // missed periods.
  template <typename Act>
  DeviceResult<void> Periodically(Nanoseconds period, const std::atomic<std::uint32_t>& is_over,
                                  Act act) {
    if (period == 0) return {};
    for (Nanoseconds next = clock_.Now() + period / 2;;) {
      while (clock_.Now() < next && is_over == 0) clock_.WaitWhile(is_over, 0, next);
      if (is_over != 0) return {};
      PERSEUS_RETURN_IF_ERROR(act());
      next = std::max(next + period, clock_.Now());
    }
  }

  Result<double> Repeat(Operation operation, Nanoseconds duration) {
    if (operation == Operation::kKernel) return TimeKernel(duration);
    const Nanoseconds begin = clock().Now();
    std::int64_t count = 0;
    for (; clock().Now() < begin + duration; ++count) {
      PERSEUS_RETURN_IF_ERROR(Once(operation));
    }
    return static_cast<double>(clock().Now() - begin) /
           static_cast<double>(std::max<std::int64_t>(1, count));
  }

  Result<double> TimeKernel(Nanoseconds duration) {
    PERSEUS_ASSIGN_OR_RETURN(const auto records, Record(1, std::nullopt, 0, duration));
    const auto& samples = records.front().samples;
    if (samples.size() < 2 || samples.back().work <= samples.front().work) {
      return FailAs(ErrorKind::kSystem, "the kernel that computes made no progress");
    }
    return static_cast<double>(samples.back().at - samples.front().at) /
           (samples.back().work - samples.front().work);
  }

  Result<void> Once(Operation operation) {
    switch (operation) {
      case Operation::kKernel:
        return {};
      case Operation::kLaunch:
        PERSEUS_RETURN_IF_ERROR(gpus_[0]->MakeCurrent());
        PERSEUS_RETURN_IF_ERROR(gpus_[0]->Notify());
        return gpus_[0]->AwaitNotice();
      case Operation::kCopy:
        PERSEUS_RETURN_IF_ERROR(CopyAround());
        return AwaitAll();
      case Operation::kCollective:
        PERSEUS_RETURN_IF_ERROR(ReduceAll());
        return AwaitAll();
    }
    return {};
  }

  // Every GPU sends to the next GPU. Each GPU sends from one half of its buffer, and receives into
  // the other half.
  Result<void> CopyAround() {
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      const CudaGpu& from = *gpus_[i];
      const CudaGpu& to = *gpus_[(i + 1) % gpus_.size()];
      PERSEUS_RETURN_IF_ERROR(from.MakeCurrent());
      PERSEUS_RETURN_IF_ERROR(
          driver_.Check(driver_.CopyPeer(to.buffer() + kCopyBytes, to.context(), from.buffer(),
                                         from.context(), kCopyBytes, from.probe_stream()),
                        "copy between GPUs"));
    }
    return {};
  }

  Result<void> ReduceAll() {
    PERSEUS_RETURN_IF_ERROR(nccl_.Check(nccl_.GroupStart(), "begin an all-reduce"));
    int code = 0;
    for (std::size_t i = 0; i < gpus_.size() && code == 0; ++i) {
      // NCCL takes device addresses as pointers.
      void* const buffer = std::bit_cast<void*>(gpus_[i]->buffer());
      code = nccl_.AllReduce(buffer, buffer, kReducedFloats, cuda::Nccl::kFloat32, cuda::Nccl::kSum,
                             communicators_[i], gpus_[i]->probe_stream());
    }
    const int ended = nccl_.GroupEnd();  // Every group is ended, also after a failure in it.
    return nccl_.Check(code != 0 ? code : ended, "run an all-reduce");
  }

  Result<void> AwaitAll() {
    for (auto& gpu : gpus_) {
      PERSEUS_RETURN_IF_ERROR(gpu->MakeCurrent());
      PERSEUS_RETURN_IF_ERROR(gpu->Notify());
    }
    for (auto& gpu : gpus_) PERSEUS_RETURN_IF_ERROR(gpu->AwaitNotice());
    return {};
  }

  RealClock clock_;
  std::string why_no_kernels_;
  cuda::Driver driver_;
  std::vector<std::unique_ptr<CudaGpu>> gpus_;  // Empty without kernels.
  cuda::Nccl nccl_;
  std::vector<void*> communicators_;  // One for each GPU, or none.
  std::string why_no_copies_, why_no_collectives_;
};

}  // namespace

std::unique_ptr<MeasuredNode> OpenCudaNode(const std::vector<device::Device*>& devices) {
  return std::make_unique<CudaNode>(devices);
}

}  // namespace perseus::qualifier
