// Shared code of the tests of the NVML backend: a fake node in its own directory, a clock that
// stands still, and the devices of the node.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "perseus/runtime/device/open_devices.h"
#include "tests/fake_nvml/fake_nvml.h"
#include "tests/support/temporary_directory.h"

namespace perseus {

class FakeNode {
 public:
  explicit FakeNode(const std::vector<fake_nvml::GpuSpec>& gpus = {{}, {}, {}})
      : node(fake_nvml::FakeNvml::Create((directory_ / "node").string(), {.gpus = gpus})) {
    node.UseInThisProcess();
  }
  FakeNode(const FakeNode&) = delete;
  FakeNode& operator=(const FakeNode&) = delete;

  Result<device::DeviceList> TryOpen(const char* library = FAKE_NVML_LIBRARY) {
    return device::OpenNvmlDevices(library, [now = now_] { return *now; });
  }
  device::DeviceList Open(const char* library = FAKE_NVML_LIBRARY) {
    Result<device::DeviceList> list = TryOpen(library);
    if (!list) {
      ADD_FAILURE() << list.error().Message();
      return {};
    }
    return *std::move(list);
  }
  void Pass(Nanoseconds time) { *now_ += time; }
  // Reads the GPU every 100 ms, while its counter counts this power. 3 s are longer than the trial
  // of a counter.
  void Run(device::Device& device, int counter_w, Nanoseconds time = 3 * kSecond) {
    for (const Nanoseconds end = *now_ + time; *now_ < end;) {
      Pass(100 * kMillisecond);
      node.AddEnergy(node.GpuOf(device.info().uuid), static_cast<std::uint64_t>(100 * counter_w));
      EXPECT_TRUE(device.Read());
    }
  }
  // `gpu` is NVML's index. The list has another order.
  device::Device& At(const device::DeviceList& list, int gpu) const {
    for (const auto& device : list.devices) {
      if (device->info().uuid == node.Uuid(gpu)) return *device;
    }
    throw std::out_of_range("the list has no such GPU");
  }

 private:
  TemporaryDirectory directory_;
  std::shared_ptr<Nanoseconds> now_ = std::make_shared<Nanoseconds>(100 * kSecond);

 public:
  fake_nvml::FakeNvml node;
};

}  // namespace perseus
