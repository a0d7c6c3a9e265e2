#include "perseus/runtime/tuner/tuned_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/wording.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"
#include "perseus/runtime/tuner/job_logs.h"
#include "perseus/runtime/tuner/ran_schedule.h"
#include "perseus/runtime/tuner/stage_changes.h"
#include "perseus/runtime/tuner/step_costs.h"
#include "perseus/runtime/tuner/transfer_time.h"

namespace perseus::tuner {
namespace {

constexpr const char* kState = "tuner.json";  // The name in the job directory.

// Describes the instructions of a schedule. Measurements are valid only for the same description.
std::string NameOf(const schedule::Schedule& schedule) {
  return fmt::format("{}, {} stages on {} ranks, {} microbatches", schedule.name, schedule.stages(),
                     schedule.pp_ranks.size(), schedule.microbatches);
}

// Readings of a clock that wanders vary by less than this fraction.
constexpr double kMovedPart = 0.03;

bool HasMoved(const ReachedRanges& before, const ReachedRanges& now) {
  const auto is_far = [](int a_mhz, int b_mhz) {
    return std::abs(a_mhz - b_mhz) > kMovedPart * std::max(a_mhz, b_mhz);
  };
  return !std::ranges::equal(before, now, [&](const auto& a, const auto& b) {
    return a.first == b.first && !is_far(a.second.lowest_mhz, b.second.lowest_mhz) &&
           !is_far(a.second.highest_mhz, b.second.highest_mhz);
  });
}

}  // namespace

Result<profiler::ProfilerState> ReadTunerState(const TuningOptions& options) {
  profiler::ProfilerState state;
  state.job = NameOf(options.job.schedule);
  const std::filesystem::path path = options.job_directory / kState;
  PERSEUS_ASSIGN_OR_RETURN(const auto file, protocol::OpenJobFile(options.job_directory, kState));
  if (!file) return state;
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadToEnd(file, kMostRegularBytes, path));
  auto read = profiler::ParseProfilerState(text, path.string());
  if (!read) return read;
  PERSEUS_RETURN_IF_ERROR(profiler::CheckSameJob(*read, state.job, path.string()));
  return read;
}

Result<void> TunedJob::AwaitRanks() {
  const plan_file::PlannedJob& job = options_.job;
  const auto count = static_cast<int>(job.schedule.pp_ranks.size());
  Say(fmt::format("waiting for {} ranks in {}", job.pipelines * count * job.model.gpus_per_stage,
                  options_.job_directory.string()));
  PERSEUS_RETURN_IF_ERROR(
      conductor_.AwaitRanks(RanksOf(job.pipelines, count, job.model.gpus_per_stage)));
  clocks_mhz_.resize(static_cast<std::size_t>(count));
  const std::string state = (options_.job_directory / kState).string();
  for (const protocol::RankId& name : conductor_.ranks()) {
    if (name.pp_rank >= count) {
      return Fail(
          "rank {} trains, but the job file has only {} pp_ranks (does this job file belong to "
          "the job?)",
          Name(name), count);
    }
    const protocol::RankHeader& header = conductor_.log_of(name).header;
    if (auto same = profiler::CheckSameGpu(state_, header, state); !same) return same;
    if (auto taken = TakeClocks(header); !taken) return taken;
  }
  WarnOfOtherGpu();
  began_at_ = conductor_.logs().LastStep(conductor_.ranks());
  constexpr int kSteps = 2;
  if (auto ended = conductor_.AwaitSteps(kSteps); !ended) return ended;
  for (const protocol::RankId& name : conductor_.ranks()) {
    PERSEUS_RETURN_IF_ERROR(CheckRunsSchedule(job.schedule, name, conductor_.log_of(name)));
  }
  const std::int64_t last = conductor_.logs().LastCommonStep(conductor_.ranks());
  for (const protocol::RankId& name : conductor_.ranks()) {
    const protocol::RanStep* step = conductor_.log_of(name).Find(last);
    if (step != nullptr && WaitsBeforeOptimizer(*step)) meeting_ = Meeting::kInInstructions;
  }
  MeasureTransfers(last - 1, last);
  conductor_.ForgetBefore(last - 1);
  return {};
}

// Keeps the clocks that all GPUs of the stage have.
Result<void> TunedJob::TakeClocks(const protocol::RankHeader& header) {
  if (auto may = CheckMaySetClocks(header); !may) return may;
  std::vector<int>& common = clocks_mhz_[static_cast<std::size_t>(header.name.pp_rank)];
  if (common.empty()) common = header.sm_clocks_mhz;
  std::vector<int> both;
  std::ranges::set_intersection(common, header.sm_clocks_mhz, std::back_inserter(both));
  if (both.empty()) {
    return Fail(
        "the GPU of rank {} has no clock in common with others of its stage (do all have the "
        "same type?)",
        Name(header.name));
  }
  common = std::move(both);
  return {};
}

// Warns only once, because the facts are usually wrong for all ranks or for none.
void TunedJob::WarnOfOtherGpu() const {
  if (options_.facts_gpu_name.empty()) return;
  for (const protocol::RankId& name : conductor_.ranks()) {
    const std::string& gpu = conductor_.log_of(name).header.gpu_name;
    if (gpu.empty() || gpu == options_.facts_gpu_name) continue;
    Say(
        fmt::format("warning: the hardware facts are of the GPU {}, but rank {} trains on the GPU "
                    "{} (give the facts of the job's nodes)",
                    options_.facts_gpu_name, Name(name), gpu));
    return;
  }
}

void TunedJob::WarnOfDisturbances(const Conductor::Stretch& stretch) const {
  Disturbance most;
  protocol::RankId of_most;
  int ranks = 0;
  for (const protocol::RankId& name : conductor_.ranks()) {
    Disturbance one = DisturbanceOf(conductor_.log_of(name), stretch.landing, stretch.last);
    if (one.steps == 0) continue;
    ++ranks;
    if (one.steps <= most.steps) continue;
    most = std::move(one);
    of_most = name;
  }
  if (ranks == 0) return;
  const std::string others = ranks > 1 ? fmt::format("; {} in all", Counted(ranks, "rank")) : "";
  Say(fmt::format("warning: {} of {} steps of rank {} do not count, because {}{}", most.steps,
                  most.of_steps, Name(of_most), Describe(most), others));
}

void TunedJob::LookForPowerLimit() {
  reachable_mhz_ = WithoutUnreached(clocks_mhz_, ReachedClocks(state_.gpus, clocks_mhz_));
  reached_.clear();
  int highest = 0;
  for (const std::vector<int>& clocks : clocks_mhz_) highest = std::max(highest, clocks.back());
  for (const auto& [group, mhz] : UsualClocks(state_.gpus, clocks_mhz_)) {
    ClockRange& range = reached_.try_emplace(group.kind, ClockRange{mhz, mhz}).first->second;
    range = {std::min(range.lowest_mhz, mhz), std::max(range.highest_mhz, mhz)};
  }
  if (!HasMoved(reported_, reached_)) return;
  const bool is_first = std::exchange(reported_, reached_).empty();
  if (reached_.empty()) {
    Say(fmt::format("GPUs reach their highest clock of {} MHz again", highest));
  } else if (is_first) {
    Say(fmt::format(
        "at their power limit, GPUs do not reach their highest clock of {} MHz: {} (this "
        "is not a fault; plans are compared with these clocks)",
        highest, Describe(reached_)));
  } else {
    Say(fmt::format("the clocks at the power limit change (as with heat): by now, {}",
                    Describe(reached_)));
  }
}

std::optional<noise::Noise> TunedJob::MeasuredNoise() const {
  const auto measured = state_.noise.Solve();
  if (!measured && state_.further_noise == 0) return std::nullopt;
  noise::Noise noise = measured ? measured->noise : noise::Noise{};
  noise.independent = std::hypot(noise.independent, state_.further_noise);
  return noise;
}

MeasuredGpus TunedJob::RunningGpus() const {
  MeasuredGpus gpus;
  for (const protocol::RankId& name : conductor_.ranks()) {
    const auto known = state_.gpus.find(name);
    if (known != state_.gpus.end()) gpus.emplace(*known);
  }
  return gpus;
}

void TunedJob::MeasureWithoutPlan(const Conductor::Stretch& stretch) {
  MeasureTransfers(stretch.first(), stretch.last);
  edges_.Add(conductor_.logs(), conductor_.ranks(), stretch.first(), stretch.last);
}

void TunedJob::MeasureTransfers(std::int64_t first, std::int64_t last) {
  WarnOfWaits(first, last);
  const schedule::FixedInstructions& given = options_.job.model.fixed;
  const bool has_rest = given.load.time + given.all_reduce.time + given.optimizer.time > 0;
  if (clocks_mhz_.size() == 1 && !has_rest) {
    rest_ = TimeWithoutWork(conductor_.logs(), conductor_.ranks(), first, last);
  }
  if (!options_.measures_p2p) return;
  const auto time =
      TransferTime(conductor_.logs(), conductor_.ranks(), options_.job.schedule, first, last);
  if (time) p2p_ = time;
}

// Warns, and leaves out or corrects nothing, because the waiting time of an instruction depends
// on the clocks.
void TunedJob::WarnOfWaits(std::int64_t first, std::int64_t last) {
  if (has_named_waits_) return;
  const std::string waits = DescribeWaits(
      FindWaits(conductor_.logs(), conductor_.ranks(), options_.job.schedule, first, last));
  if (waits.empty()) return;
  has_named_waits_ = true;
  Say("warning: " + waits);
}

void TunedJob::Measure(MeasuredGpus& gpus, profiler::InstructionNoise& noise,
                       const Conductor::Stretch& stretch, Alarms alarms) const {
  const profiler::MeasuringSettings settings{.switch_latency = options_.job.switch_latency};
  StageChanges changes;
  for (const protocol::RankId& name : conductor_.ranks()) {
    const LoggedRank& rank = conductor_.log_of(name);
    profiler::KnownGpu& gpu =
        gpus.try_emplace(name, profiler::KnownGpu{rank.header.gpu, rank.header.gpu_name,
                                                  profiler::GpuMeasurements(settings)})
            .first->second;
    for (std::int64_t number = stretch.landing; number <= stretch.last; ++number) {
      const protocol::RanStep* step = rank.Find(number);
      if (step == nullptr) continue;
      changes.Add(name, rank.header.epoch, *step, gpu.measurements.FindChanges(*step));
    }
  }
  for (const protocol::RankId& name : conductor_.ranks()) {
    const LoggedRank& rank = conductor_.log_of(name);
    profiler::KnownGpu& gpu = gpus.at(name);
    // GpuMeasurements leaves out the instructions that ran while the clocks changed.
    std::vector<std::vector<protocol::RanInstruction>> counted;
    for (std::int64_t number = stretch.landing; number <= stretch.last; ++number) {
      const protocol::RanStep* step = rank.Find(number);
      if (step == nullptr) continue;
      for (const profiler::DriftAlarm& alarm :
           gpu.measurements.Add(*step, changes.Of(name, rank.header.epoch, *step))) {
        if (alarms == Alarms::kIgnored) continue;
        Say(fmt::format(
            "{} of rank {} at {} MHz has changed by {:+.1f} % in step {} since it was measured: "
            "measuring it again",
            alarm.quantity == profiler::DriftAlarm::Quantity::kTime ? "the time" : "the power",
            Name(name), alarm.what.frequency_mhz, 100 * (alarm.now / alarm.before - 1),
            alarm.step));
      }
      // In the step in which clocks change, many instructions do not count.
      if (number >= stretch.first()) counted.push_back(gpu.measurements.last_counted());
    }
    noise.Add(counted);
  }
}

profiler::SweepJob TunedJob::Job() const {
  profiler::SweepJob job{.schedule = options_.job.schedule,
                         .model = options_.job.model,
                         .clocks_mhz = reachable_mhz_,
                         .switch_latency = options_.job.switch_latency,
                         .switch_cost = options_.job.switch_cost,
                         .change_limit = options_.change_limit};
  if (job.model.blocking_power_w == 0) {
    job.model.blocking_power_w = PooledBlockingPower(state_.gpus).value_or(0);
  }
  if (p2p_) job.model.fixed.p2p = *p2p_;
  if (rest_ > 0) job.model.fixed.all_reduce.time = rest_;
  // If there is a switch latency, each of two alternating kinds would begin at the clock of the
  // other kind.
  if (options_.job.switch_latency > 0) job.clocks = profiler::SweepJob::Clocks::kOneARank;
  return job;
}

Result<void> TunedJob::SaveState() const {
  return protocol::WriteJobFile(options_.job_directory, kState,
                                profiler::FormatProfilerState(state_));
}

}  // namespace perseus::tuner
