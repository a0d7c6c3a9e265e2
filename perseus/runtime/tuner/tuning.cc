#include "perseus/runtime/tuner/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "perseus/base/wording.h"
#include "perseus/runtime/profiler/profiler_state.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"
#include "perseus/runtime/tuner/conductor.h"
#include "perseus/runtime/tuner/edge_microbatches.h"
#include "perseus/runtime/tuner/job_logs.h"
#include "perseus/runtime/tuner/pooled_measurements.h"
#include "perseus/runtime/tuner/ran_schedule.h"
#include "perseus/runtime/tuner/stage_changes.h"
#include "perseus/runtime/tuner/transfer_time.h"
#include "perseus/runtime/tuner/tuned_plan.h"

namespace perseus::tuner {
namespace {

// How many plans are followed. A plan is made from the options that seem best, and these options
// seem better than they are. So the first plan is activated and measured at its own clocks. Then a
// second plan is made with these measurements. The promise of the second plan is computed from the
// times that were measured while it ran, and from the energy of its whole steps.
constexpr int kPlansFollowed = 2;

constexpr const char* kState = "tuner.json";  // The name in the job directory.

// Describes the instructions of a schedule. Measurements are valid only for the same description.
std::string NameOf(const schedule::Schedule& schedule) {
  return fmt::format("{}, {} stages on {} ranks, {} microbatches", schedule.name, schedule.stages(),
                     schedule.pp_ranks.size(), schedule.microbatches);
}

// Reads the state of an earlier coordinator of this job. If no state exists, returns an empty
// state.
Result<profiler::ProfilerState> ReadState(const TuningOptions& options) {
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

int MostFrequencies(std::span<const profiler::MeasuredOption> options) {
  std::map<profiler::InstructionGroup, int> frequencies;
  int most = 0;
  for (const profiler::MeasuredOption& option : options) {
    most = std::max(most, ++frequencies[option.group]);
  }
  return most;
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

class Tuner {
 public:
  Tuner(const TuningOptions& options, Conductor conductor, profiler::ProfilerState state)
      : options_(options), conductor_(std::move(conductor)), state_(std::move(state)) {}

  Result<TuningResult> Run() {
    Result<void> run = AwaitRanks();
    if (run) run = Sweep();
    const int frequencies = run ? MostFrequencies(Options()) : 0;
    if (run) run = options_.leaves_plan_in_force ? FollowPlans() : MakePlan();
    if (!run || !options_.leaves_plan_in_force) {
      const auto back = conductor_.Restore();
      if (run && !back) return Fail(back);
    }
    if (!run) return Fail(run);
    const TunedPlan& pace = plans_->pace();
    const double baseline_s = ToSeconds(pace.file().baseline_time);
    const std::vector<profiler::MeasuredOption> measured = Options();
    // The plan is already active, so this computation delays nothing.
    std::optional<Expectation> expected;
    if (const auto drawn = ExpectFrom(Job(), options_.job, options_.target, measured)) {
      expected = *drawn;
      if (seen_) expected->optimism = 0;
    }
    PERSEUS_ASSIGN_OR_RETURN(auto profile, plans_->ProfileForPlans(Job(), seen_));
    return TuningResult{MeasuredProfile(measured),
                        pace.profile(),
                        std::move(profile),
                        pace.file(),
                        plans_->FasterPlans(),
                        plans_->Promise(),
                        state_.noise.Solve(),
                        pace.file().job.model.blocking_power_w,
                        state_.spent,
                        state_.spent.Slowdown(baseline_s),
                        seen_,
                        rounds_,
                        frequencies,
                        reason_,
                        version_,
                        plan_from_step_,
                        conductor_.logs().LastStep(conductor_.ranks()) - began_at_,
                        expected,
                        edges_.Differences(),
                        reached_};
  }

 private:
  Result<void> AwaitRanks() {
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
    MeasureTransfers(last - 1, last);
    conductor_.ForgetBefore(last - 1);
    return {};
  }

  // Keeps the clocks that all GPUs of the stage have.
  Result<void> TakeClocks(const protocol::RankHeader& header) {
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

  Result<void> Sweep() {
    for (;;) {
      LookForPowerLimit();
      PERSEUS_ASSIGN_OR_RETURN(
          const auto round, profiler::ChooseRound(Job(), options_.budget, Options(), state_.spent));
      if (round.is_over()) {
        reason_ = round.reason;
        return {};
      }
      Say(fmt::format(
          "round {}: {}{}", rounds_ + 1, round.reason,
          round.predicted_s > 0 ? fmt::format(", about {:.3f} s a step", round.predicted_s) : ""));
      if (auto ran = RunRound(round); !ran) return ran;
    }
  }

  Result<void> RunRound(const profiler::SweepRound& round) {
    protocol::Assignment assignment;
    assignment.clocks = round.clocks;
    PERSEUS_ASSIGN_OR_RETURN(const auto ran,
                             conductor_.RunWith(std::move(assignment), round.steps, 0));
    Measure(state_.gpus, state_.noise, ran, Alarms::kReported);
    if (++rounds_ == 1) {
      if (auto energy = CheckEnergy(ran); !energy) return energy;
    }
    WarnOfDisturbances(ran);
    MeasureTransfers(ran.first(), ran.last);
    edges_.Add(conductor_.logs(), conductor_.ranks(), ran.first(), ran.last);
    state_.spent.steps += ran.steps();
    const LoggedRank& any = conductor_.log_of(*conductor_.ranks().begin());
    const protocol::RanStep* first = any.Find(ran.landing);
    const protocol::RanStep* last = any.Find(ran.last);
    if (first != nullptr && last != nullptr) {
      state_.spent.seconds += ToSeconds(last->end - first->begin);
    }
    conductor_.ForgetBefore(ran.last);
    return SaveState();
  }

  // Checks after the first round that energies can be measured, before the budget is spent.
  Result<void> CheckEnergy(const Conductor::Stretch& stretch) const {
    for (const protocol::RankId& name : conductor_.ranks()) {
      const profiler::GpuMeasurements::Counts& counts = state_.gpus.at(name).measurements.counts();
      if (counts.windows > counts.windows_left_out) continue;
      const Disturbance disturbance =
          DisturbanceOf(conductor_.log_of(name), stretch.landing, stretch.last);
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

  // Warns if whole steps need more than the target allows. They may need more than the sum of their
  // measured instructions.
  void WarnAboveTarget() const {
    const plan_file::PlanFile& file = plans_->pace().file();
    plan::Evaluation judged;
    judged.time = file.time;
    judged.energy_j = file.energy_j;
    if (plan::IsWithin(options_.target, judged)) return;
    Say(
        fmt::format("warning: by the energy of whole steps, the plan needs {:.6g} J and {:.6g} W, "
                    "which is more than its target, {} (run again with a lower one)",
                    judged.energy_j, judged.average_power_w(), plan::Describe(options_.target)));
  }

  // Reports the steps that do not count, in one line. The line names the rank with the most such
  // steps.
  void WarnOfDisturbances(const Conductor::Stretch& stretch) const {
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

  // Finds the clocks that the power limit permits. Reports these clocks, and again if they move.
  void LookForPowerLimit() {
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

  std::vector<profiler::MeasuredOption> Options() const {
    return PooledOptions(state_.gpus, reachable_mhz_);
  }
  // Not called while a plan is followed, because the plan was made with one transfer time, and is
  // evaluated with the same time.
  void MeasureTransfers(std::int64_t first, std::int64_t last) {
    WarnOfWaits(first, last);
    if (!options_.measures_p2p) return;
    const auto time =
        TransferTime(conductor_.logs(), conductor_.ranks(), options_.job.schedule, first, last);
    if (time) p2p_ = time;
  }

  // Warns, and leaves out or corrects nothing, because the waiting time of an instruction depends
  // on the clocks.
  void WarnOfWaits(std::int64_t first, std::int64_t last) {
    if (has_named_waits_) return;
    const std::string waits = DescribeWaits(
        FindWaits(conductor_.logs(), conductor_.ranks(), options_.job.schedule, first, last));
    if (waits.empty()) return;
    has_named_waits_ = true;
    Say("warning: " + waits);
  }

  enum class Alarms { kReported, kIgnored };
  void Measure(MeasuredGpus& gpus, profiler::InstructionNoise& noise,
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

  // Writes the plans of all pipelines.
  Result<protocol::Assignment> AssignPlans() const {
    protocol::Assignment assignment;
    PERSEUS_ASSIGN_OR_RETURN(assignment.plan,
                             conductor_.AddPlan(plan_file::FormatPlan(plans_->pace().file())));
    for (const auto& [dp_rank, plan] : plans_->FasterPlans()) {
      PERSEUS_ASSIGN_OR_RETURN(assignment.plans[dp_rank],
                               conductor_.AddPlan(plan_file::FormatPlan(plan), dp_rank));
    }
    return assignment;
  }

  // Runs the steps with which the plan is compared, directly before the plan.
  Result<UsualCost> RunBaseline() {
    protocol::Assignment assignment;
    for (const profiler::InstructionGroup& group : profiler::GroupsOf(options_.job.schedule)) {
      const int highest = clocks_mhz_[static_cast<std::size_t>(group.rank)].back();
      assignment.clocks.push_back({group.rank, group.chunk, group.kind, highest});
    }
    Say(fmt::format("measuring steps at the highest clocks{} to compare with",
                    reached_.empty() ? "" : " that the power limit permits"));
    PERSEUS_ASSIGN_OR_RETURN(const auto ran,
                             conductor_.RunWith(std::move(assignment), options_.steps_followed, 0));
    Measure(state_.gpus, state_.noise, ran, Alarms::kReported);
    WarnOfDisturbances(ran);
    LookForPowerLimit();
    MeasureTransfers(ran.first(), ran.last);
    edges_.Add(conductor_.logs(), conductor_.ranks(), ran.first(), ran.last);
    auto cost = UsualCostOfSteps(conductor_.logs(), conductor_.ranks(), ran.counted());
    conductor_.ForgetBefore(ran.last);
    return cost;
  }

  struct Followed {
    MeasuredGpus gpus;  // Only the measurements while the plan was followed.
    UsualCost cost;
  };
  // Activates the plan until it is measured.
  Result<Followed> Follow() {
    Say("following a plan to measure it");
    PERSEUS_ASSIGN_OR_RETURN(auto assignment, AssignPlans());
    // The number of steps is enough to evaluate the plan, and for the ranks to read the next
    // assignment.
    const auto spare_steps = static_cast<int>(2 * conductor_.Ahead());
    PERSEUS_ASSIGN_OR_RETURN(
        const auto ran,
        conductor_.RunWith(std::move(assignment), options_.steps_followed, spare_steps));
    Followed followed;
    profiler::InstructionNoise of_plan;
    WarnOfDisturbances(ran);
    Measure(followed.gpus, of_plan, ran, Alarms::kIgnored);
    Measure(state_.gpus, state_.noise, ran, Alarms::kReported);
    PERSEUS_ASSIGN_OR_RETURN(
        followed.cost, UsualCostOfSteps(conductor_.logs(), conductor_.ranks(), ran.counted()));
    conductor_.ForgetBefore(ran.last);
    PERSEUS_RETURN_IF_ERROR(SaveState());
    return followed;
  }

  // If whole steps were slower than the noise explains, the remaining slowdown counts as additional
  // noise for the next plan. The additional noise covers other causes: switches that sometimes take
  // longer than stated, and processes that wake up late. Two standard errors are subtracted first.
  // Otherwise, plans would get an expensive margin by chance.
  void Explain(const SeenSteps& seen) {
    if (!plan::LimitsTime(options_.target.kind)) return;
    const double error = seen.time_error_s / seen.baseline_time_s;
    further_noise_ = plans_->pace().NoiseThatExplains(seen.slowdown() - 2 * error,
                                                      MeasuredNoise().value_or(noise::Noise{}));
  }

  // Returns the measured noise, with the additional noise that whole steps showed.
  std::optional<noise::Noise> MeasuredNoise() const {
    const auto measured = state_.noise.Solve();
    if (!measured && further_noise_ == 0) return std::nullopt;
    noise::Noise noise = measured ? measured->noise : noise::Noise{};
    noise.independent = std::hypot(noise.independent, further_noise_);
    return noise;
  }

  Result<void> FollowPlans() {
    PERSEUS_ASSIGN_OR_RETURN(const auto baseline, RunBaseline());
    std::optional<Followed> followed;
    for (int i = 0; i < kPlansFollowed; ++i) {
      if (auto made = MakePlan(); !made) return made;
      PERSEUS_ASSIGN_OR_RETURN(followed, Follow());
      // This saving differs from the saving that the plan promises, because noise made the plan's
      // options look good.
      seen_ = SeenStepsOf(followed->cost, baseline);
      if (i == 0) WarnIfStepsOverlap();
      Say(fmt::format("plan {} of {} saves {} of the energy at {} time in whole steps", i + 1,
                      kPlansFollowed, FormatPercent(seen_->saving()),
                      FormatChange(seen_->slowdown())));
      if (i + 1 < kPlansFollowed) Explain(*seen_);
    }
    PERSEUS_RETURN_IF_ERROR(plans_->JudgeBy(Job(), followed->gpus, reachable_mhz_, *seen_));
    WarnAboveTarget();
    PERSEUS_RETURN_IF_ERROR(CheckSeen(*seen_, std::max(0.0, plans_->Promise().slowdown())));
    WarnIfUnexplained();
    return LeaveInForce();
  }

  // Between two steps, a rank may not have to wait for the others, as with V-shaped schedules. Such
  // a rank begins the next step early. Then a step takes less time than in the plan's model. The
  // plan counts the difference as time for which ranks wait.
  void WarnIfStepsOverlap() const {
    if (!seen_->StepsOverlap()) return;
    const double share = seen_->overlap_s / seen_->baseline_time_s;
    Say(fmt::format(
        "warning: ranks begin a step {:.1f} % of its time before others have ended the "
        "last one, but plans assume that they begin together: a plan may slow the job by "
        "up to {:.1f} % (this cannot happen if all ranks wait for each other once in a "
        "step, as for the norm of all gradients)",
        100 * share, 100 * share));
  }

  // Warns if the profile does not explain whole steps. The values of whole steps are correct. But
  // other plans (of the server, for a straggler) use the profile.
  void WarnIfUnexplained() const {
    constexpr double kOnePoint = 0.01;
    const double promised = plans_->Promise().saving();
    if (std::abs(promised - seen_->saving()) <= kOnePoint) return;
    Say(fmt::format(
        "warning: by the energies of single instructions, the plan saves {}, but whole steps "
        "show {}: do not use this profile for other plans (measure more "
        "steps; does another program use these GPUs?)",
        FormatPercent(promised), FormatPercent(seen_->saving())));
  }

  Result<void> LeaveInForce() {
    PERSEUS_ASSIGN_OR_RETURN(auto assignment, AssignPlans());
    PERSEUS_ASSIGN_OR_RETURN(const auto left, conductor_.LeaveInForce(std::move(assignment)));
    version_ = left.version;
    plan_from_step_ = left.step;
    return {};
  }

  Result<void> MakePlan() {
    const std::optional<noise::Noise> noise = MeasuredNoise();
    // The state may have GPUs of pipelines that an earlier run had.
    MeasuredGpus gpus;
    for (const protocol::RankId& name : conductor_.ranks()) {
      const auto known = state_.gpus.find(name);
      if (known != state_.gpus.end()) gpus.emplace(*known);
    }
    auto made = PacedPlans::Make(Job(), options_.job, options_.target, gpus, reachable_mhz_, noise,
                                 options_.changes);
    if (!made) {
      return FailAs(made.error().kind, "measuring ended because {}, and this gives no plan: {}",
                    reason_, made.error().Message());
    }
    plans_ = *std::move(made);
    const std::size_t faster = plans_->FasterPlans().size();
    if (faster > 0 && !std::exchange(has_named_faster_, true)) {
      Say(
          fmt::format("{} of {} pipelines are faster than the slowest, and get plans that end "
                      "together with it",
                      faster, options_.job.pipelines));
    }
    return {};
  }

  // Warns only once, because the facts are usually wrong for all ranks or for none.
  void WarnOfOtherGpu() const {
    if (options_.facts_gpu_name.empty()) return;
    for (const protocol::RankId& name : conductor_.ranks()) {
      const std::string& gpu = conductor_.log_of(name).header.gpu_name;
      if (gpu.empty() || gpu == options_.facts_gpu_name) continue;
      Say(fmt::format(
          "warning: the hardware facts are of the GPU {}, but rank {} trains on the GPU "
          "{} (give the facts of the job's nodes)",
          options_.facts_gpu_name, Name(name), gpu));
      return;
    }
  }

  profiler::SweepJob Job() const {
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
    // If there is a switch latency, each of two alternating kinds would begin at the clock of the
    // other kind.
    if (options_.job.switch_latency > 0) job.clocks = profiler::SweepJob::Clocks::kOneARank;
    return job;
  }

  Result<void> SaveState() const {
    return protocol::WriteJobFile(options_.job_directory, kState,
                                  profiler::FormatProfilerState(state_));
  }
  void Say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

  const TuningOptions& options_;
  Conductor conductor_;
  profiler::ProfilerState state_;
  ClocksOfRanks clocks_mhz_;
  // The clocks that the power limit permits. They do not change after a plan was made, so that the
  // clocks of the plan remain options.
  ClocksOfRanks reachable_mhz_;
  ReachedRanges reached_;   // The kinds that do not reach their highest clock.
  ReachedRanges reported_;  // The latest that were reported.
  bool has_named_waits_ = false;
  EdgeMicrobatches edges_;          // Measured without a plan.
  std::optional<Nanoseconds> p2p_;  // The time measured in the latest steps without a plan.
  int rounds_ = 0;
  std::optional<PacedPlans> plans_;
  bool has_named_faster_ = false;
  double further_noise_ = 0;       // A relative standard deviation that explains whole steps.
  std::optional<SeenSteps> seen_;  // The steps with the plan that was followed last.
  std::string reason_;             // Why the sweep ended.
  std::int64_t version_ = 0;       // The assignment with the plan.
  std::int64_t plan_from_step_ = -1;
  std::int64_t began_at_ = 0;  // The last step before the tuning.
};

// ---- The ranks ----

// ---- Measuring ----

// ---- An active plan ----

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
  PERSEUS_ASSIGN_OR_RETURN(auto state, ReadState(options));
  const ConductorOptions conduct{options.assignment_delay_s, options.timeout, options.should_end};
  Conductor conductor(conduct, std::move(logs), std::move(writer), clock);
  return Tuner(options, std::move(conductor), std::move(state)).Run();
}

}  // namespace perseus::tuner
