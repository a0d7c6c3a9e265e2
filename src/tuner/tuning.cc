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
#include "perseus/jobdir/orders_desk.h"
#include "perseus/plan/evaluation.h"
#include "perseus/profiler/profiler_state.h"
#include "perseus/tuner/measurements.h"
#include "perseus/tuner/verification.h"

namespace perseus {
namespace {

// A plan is made of the options that seemed best, and those seem better than they are: a plan in
// force is measured at its own clocks, made anew once with what that shows, and judged by what is
// measured of the second one alone.
constexpr int kPlansFollowed = 2;

// How much slower than promised a plan may seem, beside three standard errors, and how much more
// energy than the baseline's it may seem to take.
constexpr double kTolerated = 0.01;
constexpr double kSlackOfErrors = 3;

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
        clock_(clock) {}

  Result<TuningResult> Run();

 private:
  Result<void> MeetRanks();
  Result<void> Sweep();
  Result<void> RunRound(const SweepRound& round);
  Result<void> CheckFollowed(std::int64_t from, std::int64_t to, std::int64_t version) const;
  Result<void> CheckEnergy() const;
  // Steps under orders that end by themselves; those that may be measured.
  struct Stretch {
    std::int64_t first = 0;
    std::int64_t last = 0;
    std::int64_t version = 0;
  };
  Result<Stretch> RunUnder(Orders orders, int steps, int spare_steps);
  struct Cost {
    double time_s = 0;
    double time_error_s = 0;
    double energy_j = 0;
  };
  Result<Cost> CostOf(const Stretch& stretch) const;
  Result<void> RunBaseline();
  SeenSteps Seen() const;
  Result<void> LeaveInForce();
  using Gpus = std::map<RankName, KnownGpu>;
  KnownGpu& KnownGpuOf(Gpus& gpus, const RankName& name) const;
  enum class Alarms { kSaid, kKept };
  void Measure(Gpus& gpus, std::int64_t from, std::int64_t to, Alarms alarms) const;
  Result<void> MakePlan();
  // Energies of the options at the highest clock of their group, and of all others, so many times.
  struct Scale {
    double highest = 1;
    double other = 1;
  };
  Result<Scale> ScaleBy(std::span<const MeasuredOption> measured) const;
  Result<void> Judge(std::span<const MeasuredOption> measured, const Scale& scale);
  Result<Gpus> Follow();
  Result<void> FollowPlans();
  Result<Profile> ProfileFor(std::span<const MeasuredOption> options, double time_margin,
                             const Scale& scale) const;
  Result<Planner> PlannerFor(const Profile& profile) const;
  struct MadePlan {
    Plan plan;
    PlanFile file;
  };
  Result<MadePlan> PlanFrom(std::span<const MeasuredOption> options) const;
  SweepJob Job() const;
  std::int64_t Ahead();
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
  std::set<RankName> ranks_;
  std::vector<std::vector<int>> clocks_mhz_;  // [rank]
  int rounds_ = 0;
  int frequencies_ = 0;
  double baseline_s_ = 0;  // A step at the highest clocks.
  double fastest_s_ = 0;   // That was seen to be usual; 0: none.
  std::optional<Cost> baseline_cost_;
  std::optional<Cost> plan_cost_;  // Of the plan that was followed last.
  std::string plan_path_;          // Its file, for orders.
  std::optional<MadePlan> made_;
  std::optional<PlanFile> plan_;    // The same, by what was measured.
  std::optional<Profile> planned_;  // All options that it could use, as it was judged by.
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

// By the fastest steps: slow ones, of a sweep, may be followed by those of before.
std::int64_t Tuner::Ahead() {
  const double step_s = logs_.StepTime(ranks_).value_or(1);
  fastest_s_ = fastest_s_ > 0 ? std::min(fastest_s_, step_s) : step_s;
  return StepsAhead(options_.orders_take_s, fastest_s_);
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

Result<Tuner::Stretch> Tuner::RunUnder(Orders orders, int steps, int spare_steps) {
  // Choosing takes time, in which the job trains on.
  if (auto read = logs_.ReadNew(); !read) return Fail(read);
  const std::int64_t from = logs_.LastStep(ranks_) + 1 + Ahead();
  const std::int64_t last = from + steps;
  orders.until_step = last + 1 + spare_steps;
  const auto version = desk_.Give(std::move(orders), from);
  if (!version) return Fail(version);
  if (auto came = AwaitStep(last); !came) return Fail(came);
  // Clocks land in the first; it pays, and counts for nothing.
  const Stretch stretch{from + 1, last, *version};
  if (auto followed = CheckFollowed(stretch.first, stretch.last, *version); !followed) {
    return Fail(followed);
  }
  return stretch;
}

Result<void> Tuner::RunRound(const SweepRound& round) {
  Orders orders;
  orders.clocks = round.clocks;
  const auto ran = RunUnder(std::move(orders), round.steps, 0);
  if (!ran) return Fail(ran);
  Measure(state_.gpus, ran->first, ran->last, Alarms::kSaid);
  if (++rounds_ == 1) {
    if (auto energy = CheckEnergy(); !energy) return energy;
  }
  // The first of them, in which clocks land, is as slow.
  state_.spent.steps += static_cast<int>(ran->last - ran->first + 2);
  const LoggedRank& any = logs_.ranks().at(*ranks_.begin());
  const RanStep* first = any.Find(ran->first - 1);
  const RanStep* last = any.Find(ran->last);
  if (first != nullptr && last != nullptr) {
    state_.spent.seconds += ToSeconds(last->end - first->begin);
  }
  logs_.ForgetBefore(ran->last);
  return WriteFileAtomically(StatePath(options_.job_directory), FormatProfilerState(state_));
}

// Before the budget is spent on times alone.
Result<void> Tuner::CheckEnergy() const {
  for (const RankName& name : ranks_) {
    const GpuMeasurements::Counts& counts = state_.gpus.at(name).measurements.counts();
    if (counts.windows > counts.windows_left_out) continue;
    return Fail(
        "rank {} recorded no energy that says anything, in {} steps with {} instructions: {}",
        Name(name), counts.steps, counts.instructions,
        counts.windows == 0
            ? "its GPU's counter did not move twice in any of them (can it be read? See "
              "PERSEUS_DEVICES and perseus doctor; or steps are shorter than two of its periods: "
              "make them longer, with more microbatches)"
            : fmt::format("{} windows of its counter, and none without a change of the clock or an "
                          "edge of the step in it (make steps longer, with more microbatches)",
                          counts.windows));
  }
  return {};
}

Result<void> Tuner::CheckFollowed(std::int64_t from, std::int64_t to, std::int64_t version) const {
  for (const RankName& name : ranks_) {
    const LoggedRank& rank = logs_.ranks().at(name);
    const std::string remark =
        rank.remarks.empty() ? "" : fmt::format("; its last remark: {}", rank.remarks.back());
    std::int64_t missing = 0;
    for (std::int64_t number = from; number <= to; ++number) {
      const RanStep* step = rank.Find(number);
      if (step == nullptr) {
        // A record that was dropped is no reason to stop.
        if (2 * ++missing <= to - from + 1) continue;
        return Fail("rank {} did not record most of steps {} to {}{}", Name(name), from, to,
                    remark);
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
      const RanStep* step = rank.Find(number);
      if (step == nullptr) continue;
      for (const DriftAlarm& alarm : gpu.measurements.Add(*step)) {
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

Result<Profile> Tuner::ProfileFor(std::span<const MeasuredOption> options, double time_margin,
                                  const Scale& scale) const {
  const SweepJob job = Job();
  const auto profile =
      PlanningProfile(job, options, {PlanningProfileSpec::Options::kAll, time_margin});
  if (!profile) return Fail(profile);
  std::vector<ProfileEntry> entries(profile->entries().begin(), profile->entries().end());
  for (ProfileEntry& entry : entries) {
    const int highest = job.clocks_mhz[static_cast<std::size_t>(entry.stage)].back();
    for (Option& option : entry.options) {
      option.energy_j *= option.frequency_mhz == highest ? scale.highest : scale.other;
    }
  }
  return Profile("the profiler's measurements", {}, std::move(entries));
}

Result<Planner> Tuner::PlannerFor(const Profile& profile) const {
  const SweepJob job = Job();
  auto graph = BuildOperationGraph(job.schedule, profile, job.model);
  if (!graph) return Fail(graph);
  return Planner::Create(*std::move(graph),
                         {.blocking_power_w = job.model.blocking_power_w * job.model.gpus_per_stage,
                          .switch_latency = options_.job.switch_latency});
}

// With the margins in its times.
Result<Tuner::MadePlan> Tuner::PlanFrom(std::span<const MeasuredOption> options) const {
  const auto profile = ProfileFor(options, PlanningProfileSpec().time_margin, Scale());
  if (!profile) return Fail(profile);
  const auto careful = PlannerFor(*profile);
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
  return Judge(measured, Scale());
}

// The plan's clocks, without margins in their times.
Result<void> Tuner::Judge(std::span<const MeasuredOption> measured, const Scale& scale) {
  auto profile = ProfileFor(measured, 0, scale);
  if (!profile) return Fail(profile);
  const auto judge = PlannerFor(*profile);
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
  planned_ = *std::move(profile);
  return {};
}

// So that whole steps at the highest clocks and of the plan cost what was measured of them:
//
//   measured = highest * (energy of options at the highest clocks) + other * (of the rest) +
//   waiting
//
// in the baseline, which has no others, and in the plan.
Result<Tuner::Scale> Tuner::ScaleBy(std::span<const MeasuredOption> measured) const {
  const auto profile = ProfileFor(measured, 0, Scale());
  if (!profile) return Fail(profile);
  const auto judge = PlannerFor(*profile);
  if (!judge) return Fail(judge);
  const auto options = FindOptions(made_->file, judge->graph(), "the plan");
  if (!options) return Fail(options);
  const Evaluator evaluator(judge->graph(), judge->model());
  const Evaluation plan = evaluator.Evaluate(*options);
  const std::vector<int> highest = BaselineOptions(judge->graph());
  double plan_highest_j = 0;
  for (std::size_t i = 0; i < options->size(); ++i) {
    if ((*options)[i] == highest[i]) plan_highest_j += plan.energies_j[i];
  }
  // Of one pipeline. Between iterations, while pipelines wait for each other, all wait.
  const auto computing_j = [&](const Cost& cost, const Evaluation& evaluation) {
    const double ranks = static_cast<double>(options_.job.schedule.ranks.size());
    const double between_s = std::max(0.0, cost.time_s - ToSeconds(evaluation.time));
    return cost.energy_j / options_.job.pipelines - evaluation.blocking_energy_j -
           between_s * ranks * judge->model().blocking_power_w;
  };
  Scale scale;
  scale.highest =
      computing_j(*baseline_cost_, judge->baseline()) / judge->baseline().operation_energy_j;
  const double others_j = plan.operation_energy_j - plan_highest_j;
  if (others_j > 0) {
    scale.other = (computing_j(*plan_cost_, plan) - scale.highest * plan_highest_j) / others_j;
  }
  // More is no error of measurement: something else draws power, or stopped.
  constexpr double kMost = 1.25;
  for (const double factor : {scale.highest, scale.other}) {
    if (!(factor > 1 / kMost && factor < kMost)) return Scale();
  }
  return scale;
}

// ---- A plan in force ----

Result<Tuner::Cost> Tuner::CostOf(const Stretch& stretch) const {
  const auto mean = CostOfSteps(logs_, ranks_, stretch.first, stretch.last, stretch.version);
  if (!mean) return Fail(mean);
  // A checkpoint or a stalled thread in one of them is not the plan's.
  std::vector<double> times;
  const LoggedRank& any = logs_.ranks().at(*ranks_.begin());
  for (std::int64_t number = stretch.first; number < stretch.last; ++number) {
    const RanStep* step = any.Find(number);
    const RanStep* next = any.Find(number + 1);
    if (step != nullptr && next != nullptr) times.push_back(ToSeconds(next->begin - step->begin));
  }
  if (times.empty()) return Fail("{} recorded too few steps", Name(*ranks_.begin()));
  const auto median = [](std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  };
  Cost cost{median(times), 0, mean->energy_j};
  std::vector<double> distances;
  for (const double time_s : times) distances.push_back(std::abs(time_s - cost.time_s));
  // Standard deviation from the median distance, and what a median's error is of a mean's, both for
  // a normal distribution.
  cost.time_error_s =
      1.4826 * 1.2533 * median(std::move(distances)) / std::sqrt(static_cast<double>(times.size()));
  return cost;
}

// What the plan is compared with, just before it.
Result<void> Tuner::RunBaseline() {
  Orders orders;
  for (const InstructionGroup& group : GroupsOf(options_.job.schedule)) {
    const int highest = clocks_mhz_[static_cast<std::size_t>(group.rank)].back();
    orders.clocks.push_back({group.rank, group.chunk, group.kind, highest});
  }
  Say("measuring steps at the highest clocks to compare with");
  const auto ran = RunUnder(std::move(orders), options_.steps_followed, 0);
  if (!ran) return Fail(ran);
  Measure(state_.gpus, ran->first, ran->last, Alarms::kSaid);
  auto cost = CostOf(*ran);
  if (!cost) return Fail(cost);
  baseline_cost_ = *cost;
  logs_.ForgetBefore(ran->last);
  return {};
}

// Puts the plan into force, for as long as it takes to measure; what was measured of it.
Result<Tuner::Gpus> Tuner::Follow() {
  Say(fmt::format("following a plan that seems to save {:.2f} % of the energy",
                  100 * (1 - plan_->energy_j / plan_->baseline_energy_j)));
  auto path = desk_.AddPlan(fmt::format("{}", desk_.version() + 1), FormatPlan(*plan_));
  if (!path) return Fail(path);
  plan_path_ = *std::move(path);
  Orders orders;
  orders.plan = plan_path_;
  // Until it is judged, and the next orders are read.
  const auto ran =
      RunUnder(std::move(orders), options_.steps_followed, static_cast<int>(2 * Ahead()));
  if (!ran) return Fail(ran);
  Gpus gpus;
  Measure(gpus, ran->first, ran->last, Alarms::kKept);
  Measure(state_.gpus, ran->first, ran->last, Alarms::kSaid);
  auto cost = CostOf(*ran);
  if (!cost) return Fail(cost);
  plan_cost_ = *cost;
  logs_.ForgetBefore(ran->last);
  const auto saved =
      WriteFileAtomically(StatePath(options_.job_directory), FormatProfilerState(state_));
  if (!saved) return Fail(saved);
  return gpus;
}

SeenSteps Tuner::Seen() const {
  return {plan_cost_->time_s, plan_cost_->energy_j, baseline_cost_->time_s,
          baseline_cost_->energy_j,
          std::hypot(baseline_cost_->time_error_s, plan_cost_->time_error_s)};
}

// Once all follow it: for good, and from step 0 on, at which a job that is started anew begins.
Result<void> Tuner::LeaveInForce() {
  const auto path = desk_.AddPlan(fmt::format("{}", desk_.version() + 1), FormatPlan(*plan_));
  if (!path) return Fail(path);
  Orders orders;
  orders.plan = *path;
  const auto version = desk_.Give(std::move(orders), 0);
  if (!version) return Fail(version);
  if (auto read = logs_.ReadNew(); !read) return read;
  const std::int64_t step = logs_.LastStep(ranks_) + 1 + Ahead();
  if (auto came = AwaitStep(step); !came) return came;
  if (auto followed = CheckFollowed(step, step, *version); !followed) return followed;
  version_ = *version;
  return {};
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

int MostFrequencies(std::span<const MeasuredOption> options) {
  std::map<InstructionGroup, int> frequencies;
  int most = 0;
  for (const MeasuredOption& option : options) {
    most = std::max(most, ++frequencies[option.group]);
  }
  return most;
}

Result<void> Tuner::FollowPlans() {
  if (auto ran = RunBaseline(); !ran) return ran;
  if (auto made = MakePlan(); !made) return made;
  for (int i = 0; i < kPlansFollowed; ++i) {
    const Result<Gpus> fresh = Follow();
    if (!fresh) return Fail(fresh);
    if (i + 1 < kPlansFollowed) {
      if (auto made = MakePlan(); !made) return made;
      continue;
    }
    const std::vector<MeasuredOption> known =
        WithFresh(PooledOptions(state_.gpus), PooledOptions(*fresh));
    const auto scale = ScaleBy(known);
    if (!scale) return Fail(scale);
    if (auto judged = Judge(known, *scale); !judged) return judged;
  }
  const double promised = ToSeconds(plan_->time) / baseline_s_ - 1;
  if (auto seen = CheckSeen(Seen(), std::max(0.0, promised)); !seen) return seen;
  return LeaveInForce();
}

Result<TuningResult> Tuner::Run() {
  Result<void> run = MeetRanks();
  if (run) run = Sweep();
  frequencies_ = MostFrequencies(PooledOptions(state_.gpus));
  if (run) run = options_.leaves_plan_in_force ? FollowPlans() : MakePlan();
  if ((!run || !options_.leaves_plan_in_force) && desk_.HasToGiveBack()) {
    const auto back = desk_.GiveBack();
    if (run && !back) return Fail(back);
  }
  if (!run) return Fail(run);
  std::optional<SeenSteps> seen;
  if (plan_cost_) seen = Seen();
  return TuningResult{MeasuredProfile(PooledOptions(state_.gpus)),
                      *std::move(planned_),
                      *std::move(plan_),
                      Job().model.blocking_power_w,
                      state_.spent,
                      state_.spent.Slowdown(baseline_s_),
                      seen,
                      rounds_,
                      frequencies_,
                      reason_,
                      version_};
}

}  // namespace

Result<void> CheckSeen(const SeenSteps& seen, double promised_slowdown) {
  const double most_s = seen.baseline_time_s * (1 + promised_slowdown + kTolerated) +
                        kSlackOfErrors * seen.time_error_s;
  if (seen.time_s > most_s) {
    return FailAs(ErrorKind::kUnreachable,
                  "the plan in force takes {:.4f} s a step, and {:.4f} s at the highest clocks: "
                  "{:.2f} % more, where it promised {:.2f} %; the clocks are what they were before "
                  "(is the switching latency in the job file? Does the order of instructions "
                  "differ from the schedule's?)",
                  seen.time_s, seen.baseline_time_s, 100 * seen.slowdown(),
                  100 * promised_slowdown);
  }
  if (seen.energy_j > (1 + kTolerated) * seen.baseline_energy_j) {
    return FailAs(
        ErrorKind::kUnreachable,
        "the plan in force takes {:.1f} J a step, and {:.1f} J at the highest clocks; the "
        "clocks are what they were before (is the blocking power right? 0 measures it)",
        seen.energy_j, seen.baseline_energy_j);
  }
  return {};
}

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
