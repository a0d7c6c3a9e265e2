// The published results of policies on the measured jobs (reference/published.csv), in the units of
// the profiles. The published times are ten times as large, and the published energies eighty times
// (ten times eight GPUs in a stage).
#pragma once

#include <filesystem>
#include <vector>

#include "bench/measured_job.h"

namespace perseus {

struct PublishedPolicies {
  const MeasuredJob* job = nullptr;
  int microbatches = 0;
  double perseus_saving = 0;  // Without a straggler, as a fraction.
  double envpipe_time_s = 0;
  double envpipe_energy_j = 0;
};

std::filesystem::path PublishedPoliciesPath();

// All rows of the file. Aborts if the file does not have the expected contents.
std::vector<PublishedPolicies> ReadPublishedPolicies();

}  // namespace perseus
