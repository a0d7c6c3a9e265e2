// A fake librocm_smi64 for tests within one process. Its GPUs are plain variables; a test accesses
// them with FakeRocmNode() of the loaded library.
#pragma once

#include <cstdint>

namespace perseus::fake_rocm {

struct Gpu {
  std::uint64_t unique_id = 0;  // 0: the driver reports none.
  std::uint64_t pci_id = 0;
  bool has_clock_range = true;  // Otherwise the GPU has only performance levels.
  bool has_energy_counter = true;
  bool has_average_power = true;      // Otherwise it reports the current power.
  bool has_long_frequencies = false;  // Uses the frequency struct of ROCm 6.
  std::uint32_t fault = 0;  // Result of all functions that change a setting; 0: they work.
  int level = 0;
  std::uint64_t range_mhz[2] = {500, 1700};
  std::uint64_t sm_mhz = 1700;
  std::uint64_t power_uw = 300'000'000;
  std::uint64_t cap_uw = 500'000'000;
  std::uint64_t energy_count = 0;  // In units of 15.3 uJ.
  int changes = 0;
};

struct Node {
  std::uint32_t count = 0;
  bool is_driver_gone = false;
  int references = 0;
  Gpu gpus[4];
};

}  // namespace perseus::fake_rocm

// The library exports it; find it with dlsym().
extern "C" perseus::fake_rocm::Node* FakeRocmNode();
