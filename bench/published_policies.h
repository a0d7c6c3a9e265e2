// What was published of policies on the measured jobs (reference/published.csv), in the profile's
// units: published times are ten times those, energies eighty times (ten, times eight GPUs a
// stage).
#pragma once

#include <filesystem>
#include <vector>

#include "bench/measured_job.h"

namespace perseus {

struct PublishedPolicies {
  const MeasuredJob* job = nullptr;
  int microbatches = 0;
  int pipelines = 0;          // Of the full-scale job: 64 GPUs each.
  double perseus_saving = 0;  // With no straggler, a fraction.
  double envpipe_time_s = 0;
  double envpipe_energy_j = 0;
};

std::filesystem::path PublishedPoliciesPath();

// Every row of the file. Aborts if it is not what it was.
std::vector<PublishedPolicies> ReadPublishedPolicies();

}  // namespace perseus
