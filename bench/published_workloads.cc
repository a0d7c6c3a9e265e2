// Do modelled profiles rank workloads as measurements do? For each of the ten workloads that the
// authors of the published method measured on real GPUs (arXiv 2312.06902; reference/measured.csv):
// the model's profile (src/profile/model_profile.h), our plans on it, and their savings beside the
// measured ones, with no slowdown and with stragglers. Prints the tables of docs/reproduction.md.
//
//   published_workloads [kept]          kept: activations are kept, not computed again
//   published_workloads stages          what each stage takes, and at which power
//   published_workloads calibration     the model's clocks and powers beside two measured profiles
//
// Needs ../shared or the folder that PERSEUS_SHARED_DIR names.
//
// Savings are those of one pipeline that no straggler is in, against everything at maximum
// frequency, both over the straggler's iteration time T': who is done earlier waits at the blocking
// power.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "measured_job.h"
#include "perseus/base/file.h"
#include "perseus/pipeline/schedule.h"
#include "perseus/plan/planner.h"
#include "perseus/profile/csv_reader.h"
#include "perseus/profile/layer_partition.h"
#include "perseus/profile/model_profile.h"

namespace perseus {
namespace {

constexpr double kSlowdowns[] = {1, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5};
constexpr std::size_t kSlowdownCount = std::size(kSlowdowns);

struct Workload {
  std::string model;
  std::string gpu;  // As measured.csv has it.
  ModelProfileSpec spec;
  int microbatches = 0;
  double blocking_power_w = 0;
  std::vector<double> measured;  // Savings in %, by slowdown.
};
