// A fake librocm_smi64 for tests, in one process: its GPUs are plain variables that a test reaches
// through FakeRocmNode() of the loaded library.
#pragma once

#include <cstdint>

namespace perseus::fake_rocm {

struct Gpu {
  std::uint64_t unique_id = 0;  // 0: the driver tells none.
  std::uint64_t pci_id = 0;
  bool has_clock_range = true;  // Else performance levels only.
  bool has_energy_counter = true;
  bool has_average_power = true;      // Else the momentary one.
  bool has_long_frequencies = false;  // The struct as of ROCm 6.
  std::uint32_t fault = 0;            // What all that sets something answers; 0: it works.
  int level = 0;
  std::uint64_t range_mhz[2] = {500, 1700};
  std::uint64_t sm_mhz = 1700;
  std::uint64_t power_uw = 300'000'000;
  std::uint64_t cap_uw = 500'000'000;
  std::uint64_t energy_count = 0;  // Of 15.3 uJ each.
  int changes = 0;
};

struct Node {
  std::uint32_t count = 0;
  bool is_driver_gone = false;
  int references = 0;
  Gpu gpus[4];
};

}  // namespace perseus::fake_rocm

// Of the library, by dlsym.
extern "C" perseus::fake_rocm::Node* FakeRocmNode();
