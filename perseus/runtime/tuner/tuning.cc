#include "perseus/runtime/tuner/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "perseus/base/wording.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/tuner/conductor.h"
#include "perseus/runtime/tuner/following.h"
#include "perseus/runtime/tuner/job_logs.h"
#include "perseus/runtime/tuner/outlook.h"
#include "perseus/runtime/tuner/pooled_measurements.h"
#include "perseus/runtime/tuner/tuned_job.h"
#include "perseus/runtime/tuner/tuned_plan.h"

namespace perseus::tuner {
namespace {

int MostFrequencies(std::span<const profiler::MeasuredOption> options) {
  std::map<profiler::InstructionGroup, int> frequencies;
  int most = 0;
  for (const profiler::MeasuredOption& option : options) {
    most = std::max(most, ++frequencies[option.group]);
  }
  return most;
}

class Tuner {
 public:
  Tuner(const TuningOptions& options, Conductor conductor, profiler::ProfilerState state)
      : options_(options),
        job_(options, std::move(conductor), std::move(state)),
        following_(job_) {}

  Result<TuningResult> Run() {
    Result<void> run = job_.AwaitRanks();
    if (run) run = Sweep();
    const int frequencies = run ? MostFrequencies(job_.Options()) : 0;
    if (run)
      run = options_.leaves_plan_in_force ? following_.FollowPlans(reason_)
                                          : following_.MakePlan(reason_);
    if (!run || !options_.leaves_plan_in_force) {
      const auto back = job_.conductor().Restore();
      if (run && !back) return Fail(back);
    }
    if (!run) return Fail(run);
    const TunedPlan& pace = following_.plans().pace();
    const double baseline_s = ToSeconds(pace.file().baseline_time);
    const std::vector<profiler::MeasuredOption> measured = job_.Options();
    // The plan is already active, so this computation delays nothing.
    std::optional<Expectation> expected;
    double optimism = 0;
    if (const auto drawn = ExpectFrom(job_.Job(), options_.job, options_.target, measured)) {
      expected = *drawn;
      optimism = drawn->optimism;
      if (following_.seen()) expected->optimism = 0;
    }
    PERSEUS_ASSIGN_OR_RETURN(auto profile,
                             following_.plans().ProfileForPlans(job_.Job(), following_.seen()));
    return TuningResult{MeasuredProfile(measured),
                        pace.profile(),
                        std::move(profile),
                        pace.file(),
                        following_.plans().FasterPlans(),
                        following_.plans().Promise(),
                        job_.state().noise.Solve(),
                        pace.file().job.model.blocking_power_w,
                        job_.state().spent,
                        job_.state().spent.Slowdown(baseline_s),
                        following_.seen(),
                        rounds_,
                        frequencies,
                        reason_,
                        following_.version(),
                        following_.plan_from_step(),
                        job_.steps_taken(),
                        expected,
                        job_.edges().Differences(),
                        job_.reached(),
                        following_.Outlook(optimism)};
  }

 private:
  Result<void> Sweep() {
    for (;;) {
      job_.LookForPowerLimit();
      PERSEUS_ASSIGN_OR_RETURN(
          const auto round,
          profiler::ChooseRound(job_.Job(), options_.budget, job_.Options(), job_.state().spent));
      if (round.is_over()) {
        reason_ = round.reason;
        return {};
      }
      job_.Say(fmt::format(
          "round {}: {}{}", rounds_ + 1, round.reason,
          round.predicted_s > 0 ? fmt::format(", about {:.3f} s a step", round.predicted_s) : ""));
      if (auto ran = RunRound(round); !ran) return ran;
    }
  }

  Result<void> RunRound(const profiler::SweepRound& round) {
    protocol::Assignment assignment;
    assignment.clocks = round.clocks;
    PERSEUS_ASSIGN_OR_RETURN(const auto ran,
                             job_.conductor().RunWith(std::move(assignment), round.steps, 0));
    job_.Measure(ran);
    if (++rounds_ == 1) {
      if (auto energy = CheckEnergy(ran); !energy) return energy;
    }
    job_.WarnOfDisturbances(ran);
    job_.MeasureWithoutPlan(ran);
    job_.state().spent.steps += ran.steps();
    const LoggedRank& any = job_.conductor().log_of(*job_.conductor().ranks().begin());
    const protocol::RanStep* first = any.Find(ran.landing);
    const protocol::RanStep* last = any.Find(ran.last);
    if (first != nullptr && last != nullptr) {
      job_.state().spent.seconds += ToSeconds(last->end - first->begin);
    }
    job_.conductor().ForgetBefore(ran.last);
    return job_.SaveState();
  }

  // Checks after the first round that energies can be measured, before the budget is spent.
  Result<void> CheckEnergy(const Conductor::Stretch& stretch) const {
    for (const protocol::RankId& name : job_.conductor().ranks()) {
      const profiler::GpuMeasurements::Counts& counts =
          job_.state().gpus.at(name).measurements.counts();
      if (counts.windows > counts.windows_left_out) continue;
      const Disturbance disturbance =
          DisturbanceOf(job_.conductor().log_of(name), stretch.landing, stretch.last);
      if (2 * disturbance.steps > disturbance.of_steps) {
        return Fail("rank {} measured nothing: {} of its {} steps do not count, because {}",
                    Name(name), disturbance.steps, disturbance.of_steps, Describe(disturbance));
      }
      return Fail(
          "rank {} recorded no useful energy in {} steps with {} instructions: {}", Name(name),
          counts.steps, counts.instructions,
          counts.windows == 0
              ? "its GPU's counter never changed twice in one step (can it be read? See "
                "PERSEUS_DEVICES and perseus doctor; or steps are shorter than two of its periods: "
                "make them longer, with more microbatches)"
              : fmt::format("each of the {} windows of its counter has a change of the clock or an "
                            "edge of the step in it (make steps longer, with more microbatches)",
                            counts.windows));
    }
    return {};
  }

  const TuningOptions& options_;
  TunedJob job_;
  Following following_;
  int rounds_ = 0;
  std::string reason_;  // Why the sweep ended.
};

}  // namespace

std::string Describe(const ReachedRanges& reached) {
  std::vector<std::string> texts;
  for (const auto& [kind, range] : reached) {
    texts.push_back(range.lowest_mhz == range.highest_mhz
                        ? fmt::format("{} reaches {} MHz", Name(kind), range.highest_mhz)
                        : fmt::format("{} reaches {} to {} MHz", Name(kind), range.lowest_mhz,
                                      range.highest_mhz));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

Result<TuningResult> Tune(const TuningOptions& options, Clock& clock) {
  PERSEUS_RETURN_IF_ERROR(profiler::CheckBudget(options.budget));
  PERSEUS_ASSIGN_OR_RETURN(auto logs,
                           JobLogs::Open(options.job_directory, JobLogs::Job::kIsRunning));
  PERSEUS_ASSIGN_OR_RETURN(auto writer, protocol::AssignmentWriter::Open(options.job_directory));
  PERSEUS_ASSIGN_OR_RETURN(auto state, ReadTunerState(options));
  const ConductorOptions conduct{options.assignment_delay_s, options.timeout, options.should_end};
  Conductor conductor(conduct, std::move(logs), std::move(writer), clock);
  return Tuner(options, std::move(conductor), std::move(state)).Run();
}

}  // namespace perseus::tuner
