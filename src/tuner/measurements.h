// What a job's steps tell of its instructions: each GPU's measurements (profiler/gpu_measurements.h),
// and what those of a stage say together. The GPUs of a stage, of all pipelines, count as repetitions of
// each other, for they all get one plan.
//
// Not thread safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/jobdir/rank_log.h"
#include "perseus/profiler/gpu_measurements.h"
#include "perseus/profiler/measured_option.h"

namespace perseus {

class Measurements {
 public:
  Measurements() = default;
  explicit Measurements(const MeasuringSettings& settings) : settings_(settings) {}

  std::vector<DriftAlarm> Add(const RankName& name, const RanStep& step);

  // By group and clock. Times weigh by samples, powers by how sure they are; a power that nobody can
  // tell yet is 0.
  std::vector<MeasuredOption> Options() const;
  // What a GPU draws while it waits, as sure GPUs weighing more; nothing if it cannot be told.
  std::optional<double> BlockingPower() const;

  // Everything that was added, as JSON, and back.
  std::string Format() const;
  static Result<Measurements> Parse(std::string_view text, std::string_view name);

 private:
  MeasuringSettings settings_;
  std::map<RankName, GpuMeasurements> gpus_;
};

}  // namespace perseus
