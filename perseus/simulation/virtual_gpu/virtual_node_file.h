// The description of a node of virtual GPUs (TOML). docs/formats.md, "Virtual node", explains it to
// users. virtual_node.h opens the node.
//
//   name = "box"               # for UUIDs: GPU-virtual-box-0; default: the file name without .toml
//   gpus = 8                   # 1 to 64
//   state = "box.state"        # the shared state; default: this file's name and .state
//   clock = "job.clock"        # virtual time, shared by all nodes with this file; default: real
//   rate = 1.0                 # virtual seconds per second of the clock
//   seed = 1                   # of all random numbers
//   device_file = "gpu{}"      # who may open this file may use the GPU; {}: the number of the GPU;
//                              # default: none, so a user needs a grant
//   [gpu]
//   model = "a100-sxm"         # a100, a40, a100-pcie, a100-sxm, h100-sxm: clocks and powers; or
//   profile = "profile.csv"    # the clocks of this profile; or
//   lowest_mhz = 210           # the clocks of this range
//   highest_mhz = 1410
//   step_mhz = 15              # default: 15
//   facts = "facts.toml"       # hardware facts: the defaults of the idle and the blocking power,
//                              # of the counter's period and of the switch latency
//   memory_clocks_mhz = [1215] # default: 1215; []: none to set
//   idle_power_w = 50.0        # default: that of the facts, or 50
//   blocking_power_w = 84.0    # default: that of the facts, of the model, or 80
//   power_limit_w = 400.0      # default: the model's, or none
//   least_power_limit_w = 100.0   # default: a quarter of power_limit_w
//   most_power_limit_w = 400.0    # default: power_limit_w
//   counter_period_ms = 100.0  # how often the energy counter changes; default: the facts', or 100
//   time_noise = 0.0           # standard deviation of the logarithm, at most 0.3; default: 0
//   power_noise = 0.0          # the same
//   late_launches = 0.0        # the fraction of the runs that the host launches late; default: 0
//   power_limit_wander = 0.0   # of the clock at the power limit: standard deviation of the
//                              # logarithm, at most 0.3; default: 0
//   power_factors = [1.0, 1.1] # of each GPU: the power of its instructions; default: 1 for all
//   [switch_latency]           # from the driver's answer to the GPU's clock
//   median_ms = 10.0           # default: that of the facts, or 0
//   spread = 0.3               # standard deviation of the logarithm, at most 2; default: that of
//                              # the facts, or 0
//   [thermal]                  # the defaults are those shown here
//   ambient_c = 30.0
//   resistance_c_per_w = 0.1
//   time_constant_s = 20.0
//   throttle_at_c = 90.0
//   resume_at_c = 85.0         # at least half a degree below throttle_at_c
//   throttle_mhz = 810         # default: the lowest clock
//
// All times are virtual. Relative paths are relative to the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/simulation/virtual_gpu/virtual_gpu.h"

namespace perseus::virtual_gpu {

inline constexpr int kMostVirtualGpus = 64;

struct VirtualNodeSpec {
  std::string name;
  int gpus = 0;
  std::filesystem::path description;  // The file itself.
  std::filesystem::path state;
  std::filesystem::path clock;  // The file of a SharedClock. Empty: real time.
  double rate = 1;
  std::uint64_t seed = 1;
  // The file of a GPU, with {} in place of its number. Empty: the GPUs have no device files.
  std::string device_file;
  std::string gpu_name;               // "Virtual a100-sxm"
  VirtualGpuModel gpu;                // The same for all GPUs, except for `power_factor`.
  std::vector<double> power_factors;  // By GPU. Empty: 1 for all.

  VirtualGpuModel ModelOf(int number) const;  // The first GPU is 0.
};

// Parses the text of the file `path`. Messages name this file, and other files are looked up
// relative to it. Reads the profile and the hardware facts if they are named. Errors (kInput) are
// "path:line: cause (remedy)".
Result<VirtualNodeSpec> ParseVirtualNode(std::string_view text, const std::filesystem::path& path);

// DeviceInfo::device_file of a GPU (the first is 0). Empty if the GPUs have no device files.
std::filesystem::path DeviceFileOf(const VirtualNodeSpec& spec, int gpu);

Result<VirtualNodeSpec> ReadVirtualNode(const std::filesystem::path& path);

}  // namespace perseus::virtual_gpu
