// `perseus plan` computes the frontier and plans from a profile.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "perseus/base/parallel.h"
#include "perseus/cli/flags/figure_flags.h"
#include "perseus/cli/flags/job_options.h"
#include "perseus/cli/flags/noise_flags.h"
#include "perseus/cli/flags/switch_flags.h"
#include "perseus/cli/flags/target_flags.h"
#include "perseus/cli/terminal/signals.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/limited_plans.h"
#include "perseus/cli/verbs/noise_plans.h"
#include "perseus/cli/verbs/plan_report.h"
#include "perseus/cli/verbs/plan_targets.h"
#include "perseus/cli/verbs/results.h"
#include "perseus/cli/verbs/schedule_report.h"
#include "perseus/cli/verbs/switch_plans.h"
#include "perseus/cli/verbs/terminal_plot.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/planning/discrete_bound/discrete_bound.h"
#include "perseus/planning/report/report.h"
#include "perseus/planning/schedule_search/tradeoff.h"

namespace perseus::cli {
namespace {

constexpr const char* kPlanAbout =
    "Plan the clock of every instruction of a training iteration.\n"
    "Prints the time and the energy of an iteration of one pipeline: at maximum frequency, with\n"
    "no slowdown, with several slowdowns, and at least energy. Every plan meets its target to the\n"
    "nanosecond. `gap` says how far a plan may be from the best possible plan. First plans come\n"
    "soon, and then get better. Ctrl-C ends that: the best plans so far are written as usual,\n"
    "without a limit of clock changes if none was picked yet.";
constexpr const char* kPlanExamples =
    "  perseus plan profile.csv --schedule 1f1b --pp-ranks 8 --microbatches 96 \\\n"
    "      --blocking-power 83.64 --gpus-per-stage 8 -o out\n"
    "  perseus plan --job job.toml --slowdown 5 --power-cap 21000 --price 0.12 2 \\\n"
    "      -o out\n"
    "\n"
    "DIR then contains report.html (open it in a browser), frontier.csv,\n"
    "plans/*.json, trace.json (for ui.perfetto.dev) and summary.json; with\n"
    "--schedule auto also schedule.csv, which torch.distributed.pipelining loads.\n"
    "They replace the files of an earlier run when all of them are written.";

struct PlanFlags {
  job::JobSettings job;
  TargetFlags targets;
  std::string directory;
  std::optional<int> stops;
  bool without_frontier = false;
  bool with_exact_frontier = false;
  FigureFlags figures;
  bool as_json = false;
  bool with_plot = false;
  SwitchFlags switches;
  NoiseFlags noise;
  int effort = plan::kUsualEffort;
  bool with_progress = false;
};

// The new files replace those of an earlier run. The schedule of that run may be the input of this
// one.
bool ReadsScheduleOfDirectory(const PlanFlags& flags) {
  const std::filesystem::path read(flags.job.schedule_file);
  return !read.empty() &&
         read.lexically_normal() ==
             (std::filesystem::path(flags.directory) / kScheduleCsv).lexically_normal();
}

Result<void> CheckWithoutFrontier(const std::vector<plan::Target>& asked) {
  for (const plan::Target& target : asked) {
    if (plan::NeedsFrontier(target.kind)) {
      return Fail("{} needs the frontier (leave out --no-frontier)", Describe(target));
    }
  }
  return {};
}

// Checks the flags alone.
Result<void> CheckFlags(const PlanFlags& flags) {
  if (flags.stops.value_or(0) > 0 && flags.directory.empty()) {
    return Fail("--stops needs a directory for the report (add -o DIR)");
  }
  if (flags.with_plot && flags.as_json) {
    return Fail("--plot and --json exclude each other (remove one of them)");
  }
  return CheckNoise(flags.noise);
}

// A general graph need not be about GPUs, and the plan of a very large job takes long enough
// without it.
bool PicksLimitByDefault(const PlanFlags& flags, const job::LoadedJob& job) {
  constexpr std::size_t kMostInstructions = 20'000;
  return flags.switches.AreOpen() && !job.planned.IsGeneralGraph() &&
         job.graph.instructions.size() <= kMostInstructions;
}

// Replaces the bound of each plan by the bound for measured options where it is greater
// (planning/discrete_bound). Leaves out stops, which have no row in the table. `raised` is a plan
// that has such a bound already: other plans of its deadline take it over.
void RaiseRowBounds(const plan::Planner& planner, std::vector<PlannedTarget>& planned,
                    const plan::Plan* raised = nullptr) {
  ForEachOnAllCores(planned.size(), [&](std::size_t i) {
    plan::Plan& plan = planned[i].plan;
    if (planned[i].is_stop) return;
    if (raised != nullptr && raised->deadline == plan.deadline) {
      plan.lower_bound_j = std::max(plan.lower_bound_j, raised->lower_bound_j);
    } else {
      discrete_bound::RaiseBound(planner, plan);
    }
  });
}

RowBlock::Lines LinesOf(const PlanFlags& flags) {
  return flags.with_progress ? RowBlock::Lines::kYes : RowBlock::Lines::kNo;
}

// Fills the outcome of one run. A request to finish (Ctrl-C) ends it with the plans so far.
class PlanRun {
 public:
  PlanRun(const Streams& streams, const PlanFlags& flags, const std::vector<plan::Target>& asked,
          std::stop_token finish, PlanOutcome& outcome)
      : flags_(flags),
        switches_(flags.switches),
        asked_(asked),
        finish_(std::move(finish)),
        outcome_(outcome),
        planner_(outcome.planner),
        most_changes_per_s_(outcome.job.facts.most_changes_per_s),
        rows_(streams.err, planner_, LinesOf(flags)),
        plans_(planner_, rows_) {}

  // Plans every target: first quick plans, then better ones, until the effort is done or the user
  // interrupts, and then plans with few clock changes, or with a margin for noise.
  Result<void> ComputePlans(const std::optional<noise::Noise>& noise) {
    if (switches_.most_switches || switches_.picks_limit) rows_.AnnounceLimit();
    PERSEUS_RETURN_IF_ERROR(LookFirst());
    const plan::SearchLimits search{.effort = flags_.effort, .stop = {}, .finish = finish_};
    if (switches_.by_default) PERSEUS_RETURN_IF_ERROR(TradeOffByDefault(search));
    PlansOfEfforts of_less_effort;  // For a margin of noise, or a limit.
    if (!outcome_.limit.most_switches) {
      const bool needs_all = noise || switches_.most_switches;
      for (int effort = 1; needs_all && effort < flags_.effort; ++effort) {
        PERSEUS_RETURN_IF_ERROR(plans_.Improve({.effort = effort, .stop = {}, .finish = finish_}));
        of_less_effort.push_back(plans_.Best());
      }
      PERSEUS_RETURN_IF_ERROR(plans_.Improve(search));
    }
    std::vector<PlannedTarget>& planned = outcome_.targets = plans_.Best();
    if (!outcome_.limit.most_switches) {
      if (!switches_.most_switches) ImproveUnderSwitchCost(planner_, finish_, planned);
      RaiseRowBounds(planner_, planned);
    }
    if (!switches_.by_default) {
      outcome_.limit.most_switches = switches_.most_switches;
      if (switches_.needs_tradeoff()) PERSEUS_RETURN_IF_ERROR(TradeOff(TradedPlan(planned).plan));
    }
    PERSEUS_RETURN_IF_ERROR(LimitPlans(of_less_effort));
    if (noise) {
      noise::MarginLimits margin{.stop = {}, .finish = finish_};
      if (outcome_.limit.most_switches || most_changes_per_s_) {
        margin.changes = noise::MarginLimits::Changes::kNoMore;
        of_less_effort.clear();  // These have more changes.
      }
      PERSEUS_ASSIGN_OR_RETURN(outcome_.noise,
                               AddNoiseMargins(planner_, *noise, margin, planned, of_less_effort));
    }
    for (const PlannedTarget& one : planned) {
      PERSEUS_RETURN_IF_ERROR(plan::CheckKeeps(planner_, one.target, one.plan));
    }
    outcome_.was_interrupted = finish_.stop_requested();
    return {};
  }

 private:
  // Computes the frontier and makes a first plan for each target. Shows the plans meanwhile: first
  // the one with no slowdown, while another core finds how long an iteration may take to save
  // energy, then all that need no frontier. The frontier of a large job starts from their optima
  // and that of the least time, and takes longest. A request to finish leaves it out if no target
  // needs it.
  Result<void> LookFirst() {
    const bool with_frontier = !flags_.without_frontier;
    const bool walks = flags_.with_exact_frontier || planner_.ProbablyWalks();
    Result<void> first;
    Result<plan::FrontierPoint> least_energy;
    ForEachOnAllCores(with_frontier ? 3 : 1, [&](std::size_t task) {
      if (task == 0) {
        first = plans_.LookFirst(nullptr, TargetsToPlan({}, planner_, std::nullopt, 0));
      }
      if (task == 1) least_energy = planner_.CheapestPoint(0);
      // The planner remembers the optimum. A failure would come again, and then with its cause.
      if (task == 2 && !walks) {
        (void)planner_.Relax(planner_.least_time(), planner_.blocking_price());
      }
    });
    PERSEUS_RETURN_IF_ERROR(first);
    PERSEUS_RETURN_IF_ERROR(least_energy);
    // Only the report uses stops.
    const int stops =
        flags_.directory.empty() ? 0 : flags_.stops.value_or(DefaultStops(planner_.graph()));
    const std::vector<WantedTarget> wanted = TargetsToPlan(
        asked_, planner_, with_frontier ? std::optional(least_energy->time) : std::nullopt, stops);
    std::vector<WantedTarget> deadlines = wanted;
    std::erase_if(deadlines,
                  [](const WantedTarget& one) { return plan::NeedsFrontier(one.target.kind); });
    PERSEUS_RETURN_IF_ERROR(plans_.LookFirst(nullptr, deadlines));
    if (!with_frontier) return {};
    rows_.Begin("frontier");
    const bool may_stop = deadlines.size() == wanted.size();
    Result<plan::Frontier> computed = planner_.ComputeFrontier(
        [&](double part) { rows_.Update(part); }, may_stop ? finish_ : std::stop_token(),
        flags_.with_exact_frontier ? plan::FrontierPrecision::kExact
                                   : plan::FrontierPrecision::kStatedError);
    if (!computed && may_stop && finish_.stop_requested()) return {};
    if (!computed) return Fail(computed);
    outcome_.frontier = *std::move(computed);
    return plans_.LookFirst(&*outcome_.frontier, wanted);
  }

  // The plan whose limits are traded off. A limit that is picked holds for all plans. So it is the
  // one of no slowdown, which loses most by a limit that another target picks, unless that plan
  // saves nothing. Else it is the first one that the user asks for, if its target has a time.
  const PlannedTarget& TradedPlan(const std::vector<PlannedTarget>& planned) const {
    const auto find = [&](const plan::Target& target) {
      const auto found = std::ranges::find(planned, plan::Slug(target), &PlannedTarget::slug);
      return found == planned.end() ? planned.begin() : found;
    };
    const auto no_slowdown = find({});
    const bool saves = Saves(planner_, no_slowdown->plan);
    const bool has_time = !plan::NeedsFrontier(asked_.front().kind);
    return (switches_.picks_limit && saves) || !has_time ? *no_slowdown : *find(asked_.front());
  }

  int Searches() const { return std::max(1, flags_.effort); }

  // The work of a search for plans within limits of clock changes, relative to the usual. A first
  // look is a short search.
  double WorkWithinLimits() const { return flags_.effort == plan::kFirstLook ? 0.1 : 1; }

  few_switches::SwitchLimits TradeoffLimits() const {
    return {.effort = switches_.tradeoff_effort(planner_.graph().instructions.size()) *
                      WorkWithinLimits(),
            .searches = Searches(),
            .finish = finish_,
            .threads = few_switches::SwitchLimits::Threads::kAllCores};
  }

  // Computes the trade-off, and picks the limit if no flag says it. `bounds` are those of
  // BoundTradeoff for the plan's deadline, or none.
  Result<void> TradeOff(const plan::Plan& unlimited,
                        std::vector<few_switches::BudgetBound> bounds = {}) {
    rows_.Begin("limits of clock changes");
    PERSEUS_ASSIGN_OR_RETURN(
        outcome_.switch_tradeoff,
        ComputeSwitchTradeoff(planner_, unlimited, TradeoffLimits(), std::move(bounds)));
    for (PlannedTarget& one : outcome_.targets) {
      if (one.plan.deadline == unlimited.deadline && !plan::NeedsFrontier(one.target.kind)) {
        one.plan.options = outcome_.switch_tradeoff->unlimited.options;
        one.plan.evaluation = outcome_.switch_tradeoff->unlimited.evaluation;
      }
    }
    if (!switches_.picks_limit) return {};
    outcome_.limit = PickLimit(planner_, *outcome_.switch_tradeoff, most_changes_per_s_);
    return {};
  }

  // By default, most plans are only the starts of plans with a limit. For these, a first look is
  // enough. Only the plan of the trade-off improves, while other cores bound what its limits allow.
  Result<void> TradeOffByDefault(const plan::SearchLimits& search) {
    const auto traded_plan = [&] { return PlannedTarget(TradedPlan(plans_.Best())); };
    const PlannedTarget first = traded_plan();
    plan::Plan traded;
    Result<void> improved;
    Result<std::vector<few_switches::BudgetBound>> bounds;
    ForEachOnAllCores(2, [&](std::size_t task) {
      if (task == 0) {
        improved = plans_.Improve(search, first.slug);
        traded = traded_plan().plan;
        discrete_bound::RaiseBound(planner_, traded);
      } else {
        bounds = BoundTradeoff(planner_, first.plan.deadline, TradeoffLimits());
      }
    });
    PERSEUS_RETURN_IF_ERROR(improved);
    PERSEUS_RETURN_IF_ERROR(bounds);
    if (traded.deadline != first.plan.deadline) bounds->clear();
    return TradeOff(traded, *std::move(bounds));
  }

  // Replaces the plans by plans that keep the limit, or else the rate of the hardware facts. For a
  // limit of the user, plans of less effort are starts, too.
  Result<void> LimitPlans(PlansOfEfforts of_less_effort) {
    std::vector<PlannedTarget>& planned = outcome_.targets;
    std::optional<SwitchTradeoff>& tradeoff = outcome_.switch_tradeoff;
    const few_switches::SwitchLimits limits{
        .effort = switches_.plan_effort(planner_.graph().instructions.size()) * WorkWithinLimits(),
        .searches = Searches(),
        .breadth = few_switches::SwitchLimits::Breadth::kNarrow,
        .finish = finish_};
    if (const std::optional<int> most = outcome_.limit.most_switches) {
      rows_.Begin("limit of clock changes");
      if (switches_.most_switches) {
        of_less_effort.push_back(planned);
        PERSEUS_ASSIGN_OR_RETURN(planned,
                                 ClimbToLimit(planner_, of_less_effort, *most, limits, tradeoff));
        if (tradeoff) TakeBetterPlans(planned, *tradeoff);
      } else {
        const bool may_keep = switches_.by_default && !most_changes_per_s_;
        PERSEUS_ASSIGN_OR_RETURN(
            planned, LimitSwitches(planner_, std::move(planned), *most, limits, tradeoff,
                                   may_keep ? WithoutPlan::kKeepUnlimited : WithoutPlan::kFail));
      }
    } else if (most_changes_per_s_) {
      rows_.Begin("rate of clock changes");
      PERSEUS_ASSIGN_OR_RETURN(
          planned, KeepChangeRate(planner_, std::move(planned), *most_changes_per_s_, limits));
    } else {
      return {};
    }
    RaiseRowBounds(planner_, planned, tradeoff ? &tradeoff->unlimited : nullptr);
    for (const PlannedTarget& one : planned) {
      if (!one.is_stop) rows_.ShowLimited(one.plan, plan::Describe(one.target));
    }
    return {};
  }

  const PlanFlags& flags_;
  const SwitchFlags& switches_;
  const std::vector<plan::Target>& asked_;
  const std::stop_token finish_;
  PlanOutcome& outcome_;
  const plan::Planner& planner_;
  const std::optional<double>& most_changes_per_s_;
  PlanRows rows_;
  TargetPlans plans_;
};

// Loads the job. If its schedule is searched for, shows the best one so far.
Result<job::LoadedJob> LoadShowingSearch(const Streams& streams, const PlanFlags& flags,
                                         const std::stop_token& finish) {
  RowBlock rows(streams.err, "schedules", LinesOf(flags));
  rows.Begin("schedule auto");
  schedule_search::SearchEffort search;
  search.finish = finish;
  search.progress = [&](const schedule_search::Candidate& best, double completed) {
    rows.Show("", fmt::format("schedule auto: at least {} J, in flight {}",
                              FormatQuantity(best.relaxed_energy_j),
                              schedule_search::FormatInFlight(best.in_flight)));
    rows.Update(completed);
  };
  return LoadJobToPlan(streams, flags.job, search);
}

// A searched schedule may be faster than the reference at maximum frequency. The time of the
// reference is then a target of its own: no slowdown for a user who runs the reference now.
std::vector<plan::Target> AskedOfJob(const TargetFlags& flags, const job::LoadedJob& job) {
  std::vector<plan::Target> asked = AskedTargets(flags, job.gpus());
  if (!job.auto_schedule || AsksForTarget(flags)) return asked;
  const Nanoseconds reference = job.auto_schedule->reference.time;
  if (reference > job.auto_schedule->found.candidate.time_at_maximum) {
    asked = {{.kind = plan::Target::Kind::kDeadline, .value = ToSeconds(reference)}};
  }
  return asked;
}

// What the verb prints first. `files` is the number of files that the run writes.
std::string FormatAnswer(const Streams& streams, const PlanFlags& flags, const PlanOutcome& outcome,
                         const std::string& summary, std::size_t files) {
  if (flags.as_json) return summary;
  std::string text = fmt::format("{}\n{}{}", FormatPlanTable(outcome), FormatFinding(outcome),
                                 job::Describe(outcome.job.facts));
  if (outcome.schedules) {
    text +=
        job::Describe(*outcome.job.auto_schedule) + schedule_search::Conclude(*outcome.schedules);
    const bool has_limit =
        outcome.job.auto_schedule->changes.IsNone() && flags.switches.picks_limit;
    if (has_limit) {
      text += fmt::format(
          "This compares first looks without a limit of clock changes: {} saves {:.2f} %, and "
          "schedule auto saves {:.2f} %.\n",
          outcome.schedules->reference.schedule.name, outcome.schedules->fixed.saving * 100,
          outcome.schedules->rows.front().saving * 100);
    }
  }
  text += DescribeChangeRate(outcome.job.facts, outcome.targets);
  if (outcome.switch_tradeoff) {
    text += fmt::format("\nLimits of clock changes per GPU and iteration, for {}{}:\n{}",
                        outcome.switch_tradeoff->unlimited.target,
                        outcome.noise ? ", without a margin for noise" : "",
                        FormatSwitchTradeoff(outcome.planner, *outcome.switch_tradeoff));
  }
  if (flags.switches.picks_limit)
    text += FormatPickedLimit(outcome.limit, *outcome.switch_tradeoff);
  if (outcome.noise) text += FormatNoise(*outcome.noise, outcome.targets);
  if (files == 0) text += "No plan was saved (-o DIR saves the plans and a report).\n";
  if (flags.with_plot) text += '\n' + DrawOutcome(outcome, DetectTerminal(streams));
  if (outcome.was_interrupted) text += "Stopped early: a whole run may find better plans.\n";
  return text;
}

// What the verb prints when the files are in their places.
std::string FormatSaved(const PlanFlags& flags, std::size_t files) {
  if (flags.as_json || files == 0) return "";
  std::string text = fmt::format("{} files are in {}\n", files, flags.directory);
  if (!report::HasReportPage()) {
    text +=
        "report.html is missing: this build has no report page (install nodejs and npm, and build "
        "again)\n";
  }
  return text;
}

Result<void> RunPlan(const Streams& streams, PlanFlags flags) {
  PERSEUS_RETURN_IF_ERROR(CheckFlags(flags));
  // Whether a limit is picked by default depends on the job.
  const bool may_trade_off = flags.switches.needs_tradeoff() || flags.switches.AreOpen();
  // Whether the schedule is searched for depends on the job, too.
  PERSEUS_RETURN_IF_ERROR(
      CheckFigures(flags.figures, {.has_switches = may_trade_off, .has_schedules = true}));
  PERSEUS_ASSIGN_OR_RETURN(auto overlays, LoadOverlays(flags.figures));
  // If the results cannot be written, this fails before anything is computed.
  ResultDirectory results(flags.directory, kPlanResults);
  if (!flags.directory.empty()) PERSEUS_RETURN_IF_ERROR(results.Open());
  std::optional<FinishOnInterrupt> interrupt(std::in_place, streams.err);
  const std::stop_token finish = interrupt->token();
  flags.job.most_switches = flags.switches.most_switches;
  flags.job.per_instruction = flags.switches.per_instruction || flags.switches.picks_limit;
  PERSEUS_ASSIGN_OR_RETURN(auto job, LoadShowingSearch(streams, flags, finish));
  flags.switches.UseJob(job.most_switches);
  const std::optional<double> allowed_per_s = job.facts.most_changes_per_s;
  if (flags.switches.most_switches || flags.switches.per_instruction) {
    job.facts.most_changes_per_s.reset();
  }
  const std::vector<plan::Target> asked = AskedOfJob(flags.targets, job);
  if (flags.without_frontier) PERSEUS_RETURN_IF_ERROR(CheckWithoutFrontier(asked));
  PERSEUS_ASSIGN_OR_RETURN(const auto planner, plan::Planner::Create(job.graph, job.model));
  WarnOfLikelyUnits(streams, asked, &planner.baseline());
  PERSEUS_ASSIGN_OR_RETURN(const auto noise, NoiseOf(flags.noise, job.planned));
  if (PicksLimitByDefault(flags, job)) flags.switches.PickByDefault();
  PERSEUS_RETURN_IF_ERROR(
      CheckFigures(flags.figures, {.has_switches = flags.switches.needs_tradeoff(),
                                   .has_schedules = job.auto_schedule.has_value()}));
  PlanOutcome outcome{.job = job, .planner = planner};
  PERSEUS_RETURN_IF_ERROR(PlanRun(streams, flags, asked, finish, outcome).ComputePlans(noise));
  interrupt.reset();
  if (job.auto_schedule) {
    PERSEUS_ASSIGN_OR_RETURN(outcome.schedules,
                             job::CompareWithReference(SearchJobOf(job), *job.auto_schedule));
  }
  if (allowed_per_s) WarnAboveRate(streams, outcome.targets, *allowed_per_s, job.facts.path);
  const std::string first_asked = plan::Slug(asked.front());
  std::string report_data;
  if (!flags.directory.empty() || !flags.figures.figures.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(report_data,
                             MakePlanReportData(outcome, std::move(overlays), first_asked));
  }
  std::vector<ResultFile> files;
  if (!flags.directory.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(files, MakePlanFiles(outcome, first_asked, report_data,
                                                  {.schedule = ReadsScheduleOfDirectory(flags)}));
  }
  std::vector<std::string> names;
  for (const ResultFile& file : files) names.push_back(file.name);
  const std::string summary = FormatSummary(outcome, names);
  if (!flags.directory.empty()) {
    files.push_back({std::string(kPlanResults.summary), summary});
    PERSEUS_RETURN_IF_ERROR(results.Stage(files));
  }
  // If the answer cannot be printed, the results of an earlier run stay. A figure can be made again
  // from the results, so they do not depend on it.
  PERSEUS_RETURN_IF_ERROR(
      streams.Print(FormatAnswer(streams, flags, outcome, summary, files.size())));
  PERSEUS_RETURN_IF_ERROR(results.Publish());
  PERSEUS_RETURN_IF_ERROR(streams.Print(FormatSaved(flags, files.size())));
  return AddFigures(flags.figures, report_data, flags.directory);
}

}  // namespace

Verb AddPlanVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<PlanFlags>(program, "plan", kPlanAbout, kPlanExamples);
  AddProfile(add, flags->job);
  AddJobFlags(*verb, flags->job);
  AddTargetFlags(*verb, flags->targets, Targets::kMany);
  add("-o,--output", flags->directory, "DIR", "Directory for the results");
  add("--stops", flags->stops, "N",
      "Number of further plans for the slider of the report, at even distances along the frontier "
      "(default: up to 10, fewer for large jobs)",
      WholeNumberIn({0, 1000}));
  AddSwitchFlags(*verb, flags->switches);
  AddNoiseFlags(*verb, flags->noise, "Keep the mean time under noise");
  AddFigureFlags(*verb, flags->figures);
  verb->add_flag("--no-frontier", flags->without_frontier,
                 "For very large jobs: plan only no slowdown and the targets that you ask for, "
                 "without the frontier (slowdowns, deadlines and least energy)");
  verb->add_flag("--exact-frontier", flags->with_exact_frontier,
                 "Compute every breakpoint, even if it takes minutes (default: for very large "
                 "jobs, bounds of the frontier that differ by at most 0.01 %)")
      ->excludes("--no-frontier");
  add("--effort", flags->effort, "N",
      "How much work to spend on better plans: 0 is a first look, 2 is twice the default work. The "
      "same effort gives the same plans everywhere (default: 1)",
      WholeNumberIn({plan::kFirstLook, plan::kMostEffort}));
  verb->add_flag("--progress", flags->with_progress,
                 "Print each plan on standard error as soon as it is found, and when it gets "
                 "better (a terminal shows them without this flag)");
  verb->add_flag("--json", flags->as_json, "Print JSON instead of the table");
  verb->add_flag("--plot", flags->with_plot, "Also draw the frontier, as wide as the terminal");
  return {verb, [flags = flags](const Streams& streams) { return RunPlan(streams, *flags); }};
}

}  // namespace perseus::cli
