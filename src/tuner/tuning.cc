#include "perseus/tuner/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/plan/evaluation.h"
#include "perseus/profiler/profiler_state.h"
#include "perseus/tuner/measurements.h"
#include "perseus/tuner/orders_desk.h"

namespace perseus {
namespace {

// A plan is made of the options that seemed best, and those seem better than they are: a plan in
// force is measured at its own clocks, made anew once with what that shows, and judged by what is
// measured of the second one alone.
constexpr int kPlansFollowed = 2;

std::filesystem::path StatePath(const std::filesystem::path& job_directory) {
  return job_directory / "tuner.json";
}

// Measurements are of instructions; which there are and where has to be the same.
std::string NameOf(const Schedule& schedule) {
  return fmt::format("{}, {} stages on {} ranks, {} microbatches", schedule.name, schedule.stages(),
                     schedule.ranks.size(), schedule.microbatches);
}

// What an earlier coordinator of this job knew; nothing if there was none.
Result<ProfilerState> ReadState(const TuningOptions& options) {
  ProfilerState state;
  state.job = NameOf(options.job.schedule);
  const std::filesystem::path path = StatePath(options.job_directory);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return state;
  const auto text = ReadFile(path);
  if (!text) return Fail(text);
  auto read = ParseProfilerState(*text, path.string());
  if (!read) return read;
  if (auto same = CheckSameJob(*read, state.job, path.string()); !same) return Fail(same);
  return read;
}

class Tuner {
 public:
  Tuner(const TuningOptions& options, JobLogs logs, OrdersDesk desk, ProfilerState state,
        Clock& clock)
      : options_(options),
        logs_(std::move(logs)),
        desk_(std::move(desk)),
        state_(std::move(state)),
        clock_(clock),
        first_version_(desk_.version()) {}

  Result<TuningResult> Run();

 private:
  Result<void> MeetRanks();
  Result<void> Sweep();
  Result<void> RunRound(const SweepRound& round);
  Result<void> CheckFollowed(std::int64_t from, std::int64_t to, std::int64_t version) const;
  using Gpus = std::map<RankName, KnownGpu>;
  KnownGpu& KnownGpuOf(Gpus& gpus, const RankName& name) const;
  enum class Alarms { kSaid, kKept };
  void Measure(Gpus& gpus, std::int64_t from, std::int64_t to, Alarms alarms) const;
  Result<void> MakePlan();
  Result<void> Judge(std::span<const MeasuredOption> measured);
  Result<Gpus> Follow();
  Result<Planner> PlannerFor(std::span<const MeasuredOption> options, double time_margin) const;
  struct MadePlan {
    Plan plan;
    PlanFile file;
  };
  Result<MadePlan> PlanFrom(std::span<const MeasuredOption> options) const;
  SweepJob Job() const;
  std::int64_t Ahead() const;
  Result<void> AwaitStep(std::int64_t step) {
    return logs_.AwaitStep(ranks_, step, options_.patience, options_.should_end, clock_);
  }
  void Say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

  const TuningOptions& options_;
  JobLogs logs_;
  OrdersDesk desk_;
  ProfilerState state_;
  Clock& clock_;
  const std::int64_t first_version_;
  std::set<RankName> ranks_;
  std::vector<std::vector<int>> clocks_mhz_;  // [rank]
  int rounds_ = 0;
  double baseline_s_ = 0;  // A step at the highest clocks.
  std::optional<MadePlan> made_;
  std::optional<PlanFile> plan_;  // The same, by what was measured.
  std::string reason_;
  std::int64_t version_ = 0;  // Of the orders with the plan.
};

// ---- The ranks ----

Result<void> Tuner::MeetRanks() {
  const PlannedJob& job = options_.job;
  const auto count = static_cast<int>(job.schedule.ranks.size());
  Say(fmt::format("waiting for {} ranks in {}", job.pipelines * count * job.model.gpus_per_stage,
                  options_.job_directory.string()));
  auto alive = logs_.AwaitRanks(RanksOf(job.pipelines, count, job.model.gpus_per_stage),
                                options_.patience, options_.should_end, clock_);
  if (!alive) return Fail(alive);
  ranks_ = *std::move(alive);
  clocks_mhz_.resize(static_cast<std::size_t>(count));
  for (const RankName& name : ranks_) {
    const RankHeader& header = logs_.ranks().at(name).header;
    if (name.rank >= count) {
      return Fail(
          "rank {} trains, and the job has {} along the pipeline (is this job file its own?)",
          Name(name), count);
    }
    if (!header.may_set_clocks || header.sm_clocks_mhz.empty()) {
      return Fail(
          "rank {} may not set the clock of its GPU, and nothing can be measured at other clocks "
          "(run perseus agent on {}, or let the job start one: PERSEUS_AGENT=own)",
          Name(name), header.host);
    }
    const std::string state = StatePath(options_.job_directory).string();
    if (auto same = CheckSameGpu(state_, header, state); !same) return same;
    // Those that all GPUs of the stage have.
    std::vector<int>& common = clocks_mhz_[static_cast<std::size_t>(name.rank)];
    if (common.empty()) common = header.sm_clocks_mhz;
    std::vector<int> both;
    std::set_intersection(common.begin(), common.end(), header.sm_clocks_mhz.begin(),
                          header.sm_clocks_mhz.end(), std::back_inserter(both));
    if (both.empty()) {
      return Fail(
          "rank {} has a GPU that shares no clock with others of its stage (are all of one "
          "type?)",
          Name(name));
    }
    common = std::move(both);
  }
  // How long steps take decides how far ahead orders are given.
  if (auto came = AwaitStep(logs_.LastStep(ranks_) + 2); !came) return came;
  logs_.ForgetBefore(logs_.LastCommonStep(ranks_) - 1);
  return {};
}

std::int64_t Tuner::Ahead() const {
  const double step_s = logs_.StepTime(ranks_).value_or(1);
  return 2 + static_cast<std::int64_t>(std::ceil(options_.orders_take_s / step_s));
}

// ---- Measuring ----

SweepJob Tuner::Job() const {
  SweepJob job{
      .schedule = options_.job.schedule, .model = options_.job.model, .clocks_mhz = clocks_mhz_};
  if (job.model.blocking_power_w == 0) {
    job.model.blocking_power_w = PooledBlockingPower(state_.gpus).value_or(0);
  }
  // Kinds that take turns at different clocks would each begin at the other's.
  if (options_.job.switch_latency > 0) job.clocks = SweepJob::Clocks::kOneARank;
  return job;
}

Result<void> Tuner::Sweep() {
  for (;;) {
    const auto round =
        ChooseRound(Job(), options_.budget, PooledOptions(state_.gpus), state_.spent);
    if (!round) return Fail(round);
    if (round->is_over()) {
      reason_ = round->reason;
      return {};
    }
    Say(fmt::format(
        "round {}: {}{}", rounds_ + 1, round->reason,
        round->predicted_s > 0 ? fmt::format(", about {:.3f} s a step", round->predicted_s) : ""));
    if (auto ran = RunRound(*round); !ran) return ran;
  }
}

Result<void> Tuner::RunRound(const SweepRound& round) {
  Orders orders;
  orders.clocks = round.clocks;
  const std::int64_t from = logs_.LastStep(ranks_) + 1 + Ahead();
  const auto version = desk_.Give(std::move(orders), from);
  if (!version) return Fail(version);
  // Clocks land in the first; it pays, and counts for nothing.
  const std::int64_t to = from + round.steps;
  if (auto came = AwaitStep(to); !came) return came;
  // Whatever has come by now ran under the same orders.
  const std::int64_t last = logs_.LastCommonStep(ranks_);
  if (auto followed = CheckFollowed(from + 1, last, *version); !followed) return followed;
  Measure(state_.gpus, from + 1, last, Alarms::kSaid);
  ++rounds_;
  state_.spent.steps += static_cast<int>(last - from + 1);
  const LoggedRank& any = logs_.ranks().at(*ranks_.begin());
  state_.spent.seconds += ToSeconds(any.Find(last)->end - any.Find(from)->begin);
  logs_.ForgetBefore(last);
  return WriteFileAtomically(StatePath(options_.job_directory), FormatProfilerState(state_));
}

Result<void> Tuner::CheckFollowed(std::int64_t from, std::int64_t to, std::int64_t version) const {
  for (const RankName& name : ranks_) {
    const LoggedRank& rank = logs_.ranks().at(name);
    for (std::int64_t number = from; number <= to; ++number) {
      const RanStep* step = rank.Find(number);
      const std::string remark =
          rank.remarks.empty() ? "" : fmt::format("; its last remark: {}", rank.remarks.back());
      if (step == nullptr) {
        return Fail("rank {} did not record step {}{}", Name(name), number, remark);
      }
      if (step->version != version) {
        return Fail(
            "rank {} ran step {} under orders {} and not {} (does it read them late? Raise "
            "--orders-take){}",
            Name(name), number, step->version, version, remark);
      }
      if (!step->on_plan) {
        return Fail(
            "rank {} ran step {} in another order than the plan's (is this the job's schedule?){}",
            Name(name), number, remark);
      }
    }
  }
  return {};
}

KnownGpu& Tuner::KnownGpuOf(Gpus& gpus, const RankName& name) const {
  const RankHeader& header = logs_.ranks().at(name).header;
  const MeasuringSettings settings{.switch_latency = options_.job.switch_latency};
  return gpus.try_emplace(name, KnownGpu{header.gpu, header.gpu_name, GpuMeasurements(settings)})
      .first->second;
}

void Tuner::Measure(Gpus& gpus, std::int64_t from, std::int64_t to, Alarms alarms) const {
  for (const RankName& name : ranks_) {
    const LoggedRank& rank = logs_.ranks().at(name);
    KnownGpu& gpu = KnownGpuOf(gpus, name);
    for (std::int64_t number = from; number <= to; ++number) {
      for (const DriftAlarm& alarm : gpu.measurements.Add(*rank.Find(number))) {
        if (alarms == Alarms::kKept) continue;
        Say(fmt::format(
            "{} of rank {} at {} MHz has changed since it was measured, by {:+.1f} % in "
            "step {}: measured anew",
            alarm.quantity == DriftAlarm::Quantity::kTime ? "the time" : "the power", Name(name),
            alarm.what.frequency_mhz, 100 * (alarm.now / alarm.before - 1), alarm.step));
      }
    }
  }
}

// ---- Planning ----

Result<Planner> Tuner::PlannerFor(std::span<const MeasuredOption> options,
                                  double time_margin) const {
  const SweepJob job = Job();
  const auto profile =
      PlanningProfile(job, options, {PlanningProfileSpec::Options::kAll, time_margin});
  if (!profile) return Fail(profile);
  auto graph = BuildOperationGraph(job.schedule, *profile, job.model);
  if (!graph) return Fail(graph);
  return Planner::Create(*std::move(graph),
                         {.blocking_power_w = job.model.blocking_power_w * job.model.gpus_per_stage,
                          .switch_latency = options_.job.switch_latency});
}

// With the margins in its times.
Result<Tuner::MadePlan> Tuner::PlanFrom(std::span<const MeasuredOption> options) const {
  const auto careful = PlannerFor(options, PlanningProfileSpec().time_margin);
  if (!careful) return Fail(careful);
  std::optional<Frontier> frontier;
  if (NeedsFrontier(options_.target.kind)) {
    auto computed = careful->ComputeFrontier();
    if (!computed) return Fail(computed);
    frontier = *std::move(computed);
  }
  auto plan = PlanForTarget(*careful, frontier ? &*frontier : nullptr, options_.target);
  if (!plan) return Fail(plan);
  PlannedJob job = options_.job;
  job.model = Job().model;
  PlanFile file = MakePlanFile(*careful, *plan, std::move(job));
  return MadePlan{*std::move(plan), std::move(file)};
}

Result<void> Tuner::MakePlan() {
  const std::vector<MeasuredOption> measured = PooledOptions(state_.gpus);
  auto made = PlanFrom(measured);
  if (!made) return Fail(made);
  made_ = *std::move(made);
  return Judge(measured);
}

// The plan's clocks, without margins in their times.
Result<void> Tuner::Judge(std::span<const MeasuredOption> measured) {
  const auto judge = PlannerFor(measured, 0);
  if (!judge) return Fail(judge);
  const auto options = FindOptions(made_->file, judge->graph(), "the plan");
  if (!options) return Fail(options);
  Plan judged = made_->plan;
  judged.options = *options;
  judged.evaluation = Evaluator(judge->graph(), judge->model()).Evaluate(*options);
  judged.deadline = std::max(judged.deadline, judged.evaluation.time);
  if (const auto bound = judge->BoundFor(judged.deadline)) judged.lower_bound_j = *bound;
  baseline_s_ = ToSeconds(judge->baseline().time);
  plan_ = MakePlanFile(*judge, judged, made_->file.job);
  return {};
}

// Puts the plan into force; what was measured of it.
Result<Tuner::Gpus> Tuner::Follow() {
  Say(fmt::format("following a plan that seems to save {:.2f} % of the energy",
                  100 * (1 - plan_->energy_j / plan_->baseline_energy_j)));
  const auto path = desk_.AddPlan(fmt::format("{}", desk_.version() + 1), FormatPlan(*plan_));
  if (!path) return Fail(path);
  if (auto read = logs_.ReadNew(); !read) return Fail(read);
  Orders orders;
  orders.plan = *path;
  const std::int64_t from = logs_.LastStep(ranks_) + 1 + Ahead();
  const auto version = desk_.Give(std::move(orders), from);
  if (!version) return Fail(version);
  // Clocks land in the first.
  const std::int64_t to = from + options_.steps_followed;
  if (auto came = AwaitStep(to); !came) return Fail(came);
  if (auto followed = CheckFollowed(from + 1, to, *version); !followed) return Fail(followed);
  version_ = *version;
  Gpus gpus;
  Measure(gpus, from + 1, to, Alarms::kKept);
  Measure(state_.gpus, from + 1, to, Alarms::kSaid);
  logs_.ForgetBefore(to);
  const auto saved =
      WriteFileAtomically(StatePath(options_.job_directory), FormatProfilerState(state_));
  if (!saved) return Fail(saved);
  return gpus;
}

// `known`, but for options that `fresh` has measured as well.
std::vector<MeasuredOption> WithFresh(std::vector<MeasuredOption> known,
                                      std::span<const MeasuredOption> fresh) {
  for (const MeasuredOption& option : fresh) {
    if (!(option.power_w > 0) || !std::isfinite(option.power_ci_w)) continue;
    const auto same = std::ranges::find_if(known, [&](const MeasuredOption& other) {
      return other.group == option.group && other.frequency_mhz == option.frequency_mhz;
    });
    if (same != known.end()) *same = option;
  }
  return known;
}

Result<TuningResult> Tuner::Run() {
  Result<void> run = MeetRanks();
  if (run) run = Sweep();
  if (run) run = MakePlan();
  for (int i = 0; run && options_.leaves_plan_in_force && i < kPlansFollowed; ++i) {
    const Result<Gpus> fresh = Follow();
    const bool is_last = i + 1 == kPlansFollowed;
    if (!fresh) {
      run = Fail(fresh);
    } else {
      run = is_last ? Judge(WithFresh(PooledOptions(state_.gpus), PooledOptions(*fresh)))
                    : MakePlan();
    }
  }
  if ((!run || !options_.leaves_plan_in_force) && desk_.version() != first_version_) {
    const auto back = desk_.GiveBack(logs_.LastStep(ranks_) + 1);
    if (run && !back) return Fail(back);
  }
  if (!run) return Fail(run);
  std::map<InstructionGroup, int> frequencies;
  int most = 0;
  for (const MeasuredOption& option : PooledOptions(state_.gpus)) {
    most = std::max(most, ++frequencies[option.group]);
  }
  return TuningResult{MeasuredProfile(PooledOptions(state_.gpus)),
                      *std::move(plan_),
                      Job().model.blocking_power_w,
                      state_.spent,
                      state_.spent.Slowdown(baseline_s_),
                      rounds_,
                      most,
                      reason_,
                      version_};
}

}  // namespace

Result<TuningResult> Tune(const TuningOptions& options, Clock& clock) {
  auto logs = JobLogs::Open(options.job_directory, JobLogs::Job::kIsRunning);
  if (!logs) return Fail(logs);
  auto desk = OrdersDesk::Open(options.job_directory);
  if (!desk) return Fail(desk);
  auto state = ReadState(options);
  if (!state) return Fail(state);
  return Tuner(options, *std::move(logs), *std::move(desk), *std::move(state), clock).Run();
}

}  // namespace perseus
