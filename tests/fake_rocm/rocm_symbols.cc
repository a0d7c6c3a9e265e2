// The part of ROCm SMI's interface that Perseus uses, with the fake node behind it.
#include <cstdio>
#include <cstring>

#include "tests/fake_rocm/fake_rocm.h"

namespace {

using perseus::fake_rocm::Gpu;
using perseus::fake_rocm::Node;

constexpr std::uint32_t kSuccess = 0;
constexpr std::uint32_t kInvalid = 1;
constexpr std::uint32_t kNotSupported = 2;
constexpr std::uint32_t kInitError = 8;
constexpr std::uint64_t kMega = 1'000'000;

// Calls body(gpu), which returns a status.
template <typename Body>
std::uint32_t On(std::uint32_t index, Body body) {
  Node& node = *FakeRocmNode();
  if (node.references == 0 || node.is_driver_gone) return kInitError;
  return index < node.count ? body(node.gpus[index]) : kInvalid;
}

template <typename Body>
std::uint32_t Change(std::uint32_t index, Body body) {
  return On(index, [&](Gpu& gpu) {
    if (gpu.fault != 0) return gpu.fault;
    ++gpu.changes;
    return body(gpu);
  });
}

template <typename Value>
std::uint32_t Give(bool has, std::uint64_t value, Value* to) {
  if (!has) return kNotSupported;
  *to = static_cast<Value>(value);
  return kSuccess;
}

struct ShortFrequencies {
  std::uint32_t count, current;
  std::uint64_t hertz[32];
};
struct LongFrequencies {
  bool has_deep_sleep;
  std::uint32_t count, current;
  std::uint64_t hertz[33];
};
template <typename Frequencies>
void Fill(const Gpu& gpu, void* to) {
  Frequencies frequencies = {};
  frequencies.count = 3;
  frequencies.current = 1;
  frequencies.hertz[0] = 500 * kMega;
  frequencies.hertz[1] = gpu.sm_mhz * kMega;
  frequencies.hertz[2] = 1700 * kMega;
  std::memcpy(to, &frequencies, sizeof frequencies);
}

}  // namespace

extern "C" {

Node* FakeRocmNode() {
  static Node node;
  return &node;
}

std::uint32_t rsmi_init(std::uint64_t) {
  if (FakeRocmNode()->is_driver_gone) return kInitError;
  ++FakeRocmNode()->references;
  return kSuccess;
}
std::uint32_t rsmi_shut_down() {
  --FakeRocmNode()->references;
  return kSuccess;
}
std::uint32_t rsmi_num_monitor_devices(std::uint32_t* count) {
  *count = FakeRocmNode()->count;
  return FakeRocmNode()->is_driver_gone ? kInitError : kSuccess;
}
std::uint32_t rsmi_status_string(std::uint32_t status, const char** text) {
  *text = status == 4 ? "permission denied" : "some status";
  return kSuccess;
}
std::uint32_t rsmi_dev_name_get(std::uint32_t index, char* name, std::size_t size) {
  return On(index, [&](Gpu& gpu) {
    std::snprintf(name, size, "%s", gpu.name);
    return kSuccess;
  });
}
std::uint32_t rsmi_dev_unique_id_get(std::uint32_t index, std::uint64_t* id) {
  return On(index, [&](Gpu& gpu) { return Give(gpu.unique_id != 0, gpu.unique_id, id); });
}
std::uint32_t rsmi_dev_pci_id_get(std::uint32_t index, std::uint64_t* id) {
  return On(index, [&](Gpu& gpu) { return Give(gpu.pci_id != 0, gpu.pci_id, id); });
}
std::uint32_t rsmi_dev_power_ave_get(std::uint32_t index, std::uint32_t, std::uint64_t* power) {
  return On(index, [&](Gpu& gpu) { return Give(gpu.has_average_power, gpu.power_uw, power); });
}
std::uint32_t rsmi_dev_power_get(std::uint32_t index, std::uint64_t* power, int* kind) {
  *kind = 1;
  return On(index, [&](Gpu& gpu) { return Give(true, gpu.power_uw, power); });
}
std::uint32_t rsmi_dev_energy_count_get(std::uint32_t index, std::uint64_t* count, float* each,
                                        std::uint64_t* timestamp) {
  *each = 15.3F;
  *timestamp = 0;
  return On(index, [&](Gpu& gpu) { return Give(gpu.has_energy_counter, gpu.energy_count, count); });
}
std::uint32_t rsmi_dev_temp_metric_get(std::uint32_t index, std::uint32_t sensor, int,
                                       std::int64_t* millicelsius) {
  // Only the junction has a sensor.
  return On(index, [&](Gpu&) { return Give(sensor == 1, 66'000, millicelsius); });
}
std::uint32_t rsmi_dev_gpu_clk_freq_get(std::uint32_t index, int clock, void* to) {
  return On(index, [&](Gpu& gpu) {
    if (clock != 0 || !gpu.has_frequencies) return kNotSupported;
    gpu.has_long_frequencies ? Fill<LongFrequencies>(gpu, to) : Fill<ShortFrequencies>(gpu, to);
    return kSuccess;
  });
}
std::uint32_t rsmi_dev_od_volt_info_get(std::uint32_t index, void* to) {
  return On(index, [&](Gpu& gpu) {
    if (!gpu.reports_range || !(gpu.has_clock_range || gpu.has_determinism)) return kNotSupported;
    std::uint64_t ranges[8] = {gpu.range_mhz[0] * kMega,
                               gpu.range_mhz[1] * kMega,
                               0,
                               1600 * kMega,
                               500 * kMega,
                               1700 * kMega,
                               400 * kMega,
                               1600 * kMega};
    // Without overdrive, there are no limits.
    if (!gpu.has_clock_range) std::memset(ranges + 4, 0, sizeof ranges / 2);
    std::memcpy(to, ranges, sizeof ranges);
    return kSuccess;
  });
}
std::uint32_t rsmi_dev_power_cap_get(std::uint32_t index, std::uint32_t, std::uint64_t* cap) {
  return On(index, [&](Gpu& gpu) { return Give(true, gpu.cap_uw, cap); });
}
std::uint32_t rsmi_dev_power_cap_default_get(std::uint32_t index, std::uint64_t* cap) {
  return On(index, [&](Gpu&) { return Give(true, 500'000'000, cap); });
}
std::uint32_t rsmi_dev_power_cap_range_get(std::uint32_t index, std::uint32_t, std::uint64_t* most,
                                           std::uint64_t* least) {
  return On(index, [&](Gpu&) {
    *most = 560'000'000;
    *least = 100'000'000;
    return kSuccess;
  });
}
std::uint32_t rsmi_dev_power_cap_set(std::uint32_t index, std::uint32_t, std::uint64_t cap) {
  return Change(index, [&](Gpu& gpu) {
    gpu.cap_uw = cap;
    return kSuccess;
  });
}
std::uint32_t rsmi_dev_perf_level_get(std::uint32_t index, int* level) {
  return On(index, [&](Gpu& gpu) {
    *level = gpu.level;
    return kSuccess;
  });
}
std::uint32_t rsmi_dev_perf_level_set_v1(std::uint32_t index, int level) {
  return Change(index, [&](Gpu& gpu) {
    gpu.level = level;
    return kSuccess;
  });
}
std::uint32_t rsmi_dev_clk_range_set(std::uint32_t index, std::uint64_t least, std::uint64_t most,
                                     int clock) {
  return Change(index, [&](Gpu& gpu) {
    // The real library asserts that the lower limit is below the upper limit.
    if (!gpu.has_clock_range || clock != 0 || least >= most) return kInvalid;
    gpu.level = 3;
    gpu.range_mhz[0] = least;
    gpu.range_mhz[1] = most;
    return kSuccess;
  });
}

std::uint32_t rsmi_perf_determinism_mode_set(std::uint32_t index, std::uint64_t most) {
  return Change(index, [&](Gpu& gpu) {
    if (!gpu.has_determinism || most < 500 || most > 1700) return kInvalid;
    gpu.level = 8;
    gpu.range_mhz[1] = most;
    return kSuccess;
  });
}

}  // extern "C"
