// The description of a node of virtual GPUs (TOML). docs/formats.md, "Virtual node", explains it
// to users; virtual_node.h opens what is described.
//
//   name = "box"               # of the UUIDs: GPU-virtual-box-0; absent: the file's, less .toml
//   gpus = 8                   # 1 to 64
//   state = "box.state"        # what processes share; absent: this file's name and .state
//   clock = "job.clock"        # virtual time, shared by all that name this file; absent: real time
//   rate = 1.0                 # virtual seconds a second of that time
//   seed = 1                   # of everything drawn by chance
//   [gpu]
//   model = "a100-sxm"         # a100, a40, a100-pcie, a100-sxm, h100-sxm: clocks and powers; or
//   profile = "profile.csv"    # the clocks that it has measured; or
//   lowest_mhz = 210           # these, by
//   highest_mhz = 1410
//   step_mhz = 15              # absent: 15
//   memory_clocks_mhz = [1215] # absent: 1215; []: none to set
//   idle_power_w = 50.0        # absent: 50
//   blocking_power_w = 84.0    # absent: the model's, else 80
//   power_limit_w = 400.0      # absent: the model's, else there is none
//   least_power_limit_w = 100.0   # absent: a quarter of it
//   most_power_limit_w = 400.0    # absent: it
//   counter_period_ms = 100.0  # how often the energy counter is brought up to date; absent: 100
//   time_noise = 0.0           # standard deviations of the logarithm, at most 0.3; absent: 0
//   power_noise = 0.0
//   [switch_latency]           # from a driver's "yes" to the GPU's clock
//   median_ms = 10.0           # absent: 0
//   spread = 0.3               # standard deviation of the logarithm, at most 2; absent: 0
//   [thermal]                  # absent: each as here
//   ambient_c = 30.0
//   resistance_c_per_w = 0.1
//   time_constant_s = 20.0
//   throttle_at_c = 90.0
//   resume_at_c = 85.0         # half a degree below throttle_at_c, at least
//   throttle_mhz = 810         # absent: the lowest clock
//
// All times are virtual. Relative paths are relative to the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/simulation/virtual_gpu/virtual_gpu.h"

namespace perseus::virtual_gpu {

inline constexpr int kMostVirtualGpus = 64;

struct VirtualNodeSpec {
  std::string name;
  int gpus = 0;
  std::filesystem::path description;  // The file itself.
  std::filesystem::path state;
  std::filesystem::path clock;  // Of a SharedClock; empty: real time.
  double rate = 1;
  std::uint64_t seed = 1;
  std::string gpu_name;  // "Virtual a100-sxm"
  VirtualGpuModel gpu;
};

// `text` is what stands in `path`, which is named in messages and beside which other files are
// looked for. Reads the profile, if one is named. Errors (kInput) are "path:line: cause (remedy)".
Result<VirtualNodeSpec> ParseVirtualNode(std::string_view text, const std::filesystem::path& path);

Result<VirtualNodeSpec> ReadVirtualNode(const std::filesystem::path& path);

}  // namespace perseus::virtual_gpu
