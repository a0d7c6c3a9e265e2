// A fake librocm_smi64 for tests within one process. The GPUs are plain variables. A test accesses
// them with FakeRocmNode() of the loaded library.
#pragma once

#include <cstdint>

namespace perseus::fake_rocm {

struct Gpu {
  std::uint64_t unique_id = 0;  // 0: the driver reports no unique id.
  std::uint64_t pci_id = 0;
  const char* name = "Fake MI250";
  bool has_clock_range = true;   // False: the GPU has only performance levels.
  bool has_determinism = false;  // AMD Instinct. Its highest clock is range_mhz[1].
  bool reports_range = true;     // False: the library cannot read the range or the highest clock.
  bool has_frequencies = true;
  bool has_energy_counter = true;
  bool has_average_power = true;      // False: the GPU reports the current power.
  bool has_long_frequencies = false;  // Uses the frequency struct of ROCm 6.
  // The result of all functions that change a setting. 0: the functions work.
  std::uint32_t fault = 0;
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

// The library exports this function. Find it with dlsym().
extern "C" perseus::fake_rocm::Node* FakeRocmNode();
