// `perseus replay` computes the straggler slowdown and the energy bloat of a recorded job. It also
// computes the energy that controllers would have saved.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "perseus/base/excerpt.h"
#include "perseus/base/file.h"
#include "perseus/base/json_text.h"
#include "perseus/base/statistics.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/simulation/replay/job_power_model.h"
#include "perseus/simulation/replay/job_trace.h"
#include "perseus/simulation/replay/trace_replay.h"
#include "perseus/simulation/replay/what_if.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kReplayAbout =
    "Read the recorded timeline of a real job (a Chrome trace of all ranks and steps, gzip or\n"
    "not, in one file or several). Traces of torch.profiler (torch 2.10 and later) and of "
    "veScale's "
    "ndtimeline are read, too. Check that its graph, run again, gives the recorded step times. "
    "Print how much longer "
    "it took because of stragglers, its energy bloat on a model of a GPU, and what controllers "
    "would have saved that know this step, the previous step, or an earlier one.";
constexpr const char* kReplayExamples =
    "  perseus replay timeline.json.gz --gpu a100\n"
    "  perseus replay rank*.pt.trace.json.gz\n"
    "  perseus replay timeline.json.gz --delay 2 --delay 10 --steps\n"
    "  perseus replay timeline.json --ignore data-loading --json";

constexpr int kReactive = 1;
// If the replayed and the recorded time of a step differ by more than this, the graph is probably
// wrong. In correct graphs of recorded jobs (docs/replay.md), the worst step differs by 1.3 %.
constexpr double kDoubtfulError = 0.05;

struct ReplayFlags {
  std::vector<std::string> paths;
  std::string gpu = "a100";
  std::vector<int> delays;
  replay::TraceReadOptions reading;
  double clock_tolerance_ms = 1;
  bool shows_steps = false;
  bool as_json = false;
};

struct Sums {
  double time_s = 0;
  double energy_j = 0;
};

// The answer of the verb, before it is formatted as a table or JSON.
struct Answer {
  const replay::JobTrace& trace;
  const ReplayFlags& flags;
  replay::WhatIf what_if;
  std::vector<replay::StragglerSlowdown> slowdowns;  // By step.
  replay::StragglerSlowdown job_slowdown;
  Sums highest = {};
  double intrinsic_j = 0;
  double extrinsic_j = 0;
  double bound_j = 0;
  double median_error = 0;
  double largest_error = 0;
  double median_error_without_delays = 0;
  std::vector<std::int64_t> doubtful_steps = {};  // With an error above kDoubtfulError.
  bool has_gaps = false;  // Whether some steps of the job were not recorded.

  double saving(double energy_j) const { return 1 - energy_j / highest.energy_j; }
  double slowdown(double time_s) const { return time_s / highest.time_s - 1; }
};

Sums SumOf(const std::vector<replay::StepOutcome>& steps) {
  Sums sums;
  for (const replay::StepOutcome& step : steps) {
    sums.time_s += ToSeconds(step.time);
    sums.energy_j += step.energy_j;
  }
  return sums;
}

Answer Summarize(const replay::JobTrace& trace, const ReplayFlags& flags, replay::WhatIf what_if,
                 std::vector<replay::StragglerSlowdown> slowdowns) {
  const replay::StragglerSlowdown job_slowdown = replay::SumOf(slowdowns);
  Answer answer{trace, flags, std::move(what_if), std::move(slowdowns), job_slowdown};
  std::vector<double> errors;
  std::vector<double> without_delays;
  const std::vector<replay::StepBloat>& steps = answer.what_if.steps;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const replay::StepBloat& step = steps[i];
    answer.highest.time_s += ToSeconds(step.replayed);
    answer.highest.energy_j += step.energy_j;
    answer.intrinsic_j += step.intrinsic_j;
    answer.extrinsic_j += step.extrinsic_j;
    answer.bound_j += step.bound_j;
    errors.push_back(std::abs(step.error()));
    if (errors.back() > kDoubtfulError) answer.doubtful_steps.push_back(step.number);
    without_delays.push_back(
        std::abs(ToSeconds(step.without_host_delays) / ToSeconds(step.recorded) - 1));
    // step.number + 1 could overflow, but step.number - 1 cannot.
    answer.has_gaps = answer.has_gaps || (i > 0 && step.number - 1 != steps[i - 1].number);
  }
  answer.largest_error = *std::ranges::max_element(errors);
  answer.median_error = Median(std::move(errors));
  answer.median_error_without_delays = Median(std::move(without_delays));
  return answer;
}

std::string NameOf(const replay::ControllerOutcome& controller) {
  if (controller.delay == 0) return "oracle (knows this step)";
  if (controller.delay == kReactive) return "reactive (acts on the previous step)";
  return fmt::format("delayed by {} steps", controller.delay);
}

std::string FormatSteps(const Answer& answer) {
  std::vector<std::string> header{"step",    "recorded",  "replayed",
                                  "error",   "ideal",     "straggler slowdown",
                                  "slowest", "intrinsic", "extrinsic"};
  const std::vector<replay::ControllerOutcome>& controllers = answer.what_if.controllers;
  for (const replay::ControllerOutcome& controller : controllers) {
    const std::string name = controller.delay == 0 ? "oracle"
                             : controller.delay == kReactive
                                 ? "reactive"
                                 : fmt::format("delay {}", controller.delay);
    header.push_back(name);
    header.push_back("slower");
  }
  Table table(std::move(header));
  for (std::size_t i = 0; i < answer.what_if.steps.size(); ++i) {
    const replay::StepBloat& step = answer.what_if.steps[i];
    std::vector<std::string> row{fmt::to_string(step.number),
                                 FormatQuantity(ToSeconds(step.recorded), "s"),
                                 FormatQuantity(ToSeconds(step.replayed), "s"),
                                 FormatPercent(step.error()),
                                 FormatQuantity(ToSeconds(answer.slowdowns[i].ideal), "s"),
                                 fmt::format("{:.3f}", answer.slowdowns[i].ratio()),
                                 fmt::format("dp_rank {}", step.slowest_dp_rank),
                                 FormatPercent(step.intrinsic_j / step.energy_j),
                                 FormatPercent(step.extrinsic_j / step.energy_j)};
    for (const replay::ControllerOutcome& controller : controllers) {
      const replay::StepOutcome& outcome = controller.steps[i];
      row.push_back(FormatPercent(1 - outcome.energy_j / step.energy_j));
      row.push_back(FormatPercent(ToSeconds(outcome.time) / ToSeconds(step.replayed) - 1));
    }
    table.AddRow(std::move(row));
  }
  return table.Format();
}

// Returns an empty text if the check passed.
std::string FormatDoubts(const Answer& answer) {
  const std::vector<std::int64_t>& doubtful = answer.doubtful_steps;
  if (doubtful.empty()) return {};
  constexpr std::size_t kNamed = 3;
  std::string named;
  for (std::size_t i = 0; i < std::min(kNamed, doubtful.size()); ++i) {
    named += fmt::format("{}{}", i == 0 ? "" : ", ", doubtful[i]);
  }
  if (doubtful.size() > kNamed) named += ", ...";
  return fmt::format(
      "CHECK FAILED: the replayed times of {} of {} steps differ from the recorded ones by more "
      "than {:g} % ({}), so the results below are not reliable.\nThe trace may lack a pipeline or "
      "an event that these steps waited for, or a clock may jump (--steps shows each step).\n\n",
      doubtful.size(), answer.what_if.steps.size(), kDoubtfulError * 100, named);
}

std::string FormatText(const Answer& answer) {
  const replay::JobTrace& trace = answer.trace;
  const std::vector<replay::StepBloat>& steps = answer.what_if.steps;
  std::int64_t events = 0;
  for (const replay::RecordedStep& step : trace.steps) events += std::ssize(step.events);
  std::string text = fmt::format(
      "{}: {} of {}, {} ({} to {}), {}\n"
      "error of replayed step times: {} (median), {} (largest), {} (median without host "
      "delays)\n\n",
      trace.name, Counted(trace.pipelines, "pipeline"), Counted(trace.pp_ranks, "pp_rank"),
      Counted(std::ssize(steps), "step"), steps.front().number, steps.back().number,
      Counted(events, "event"), FormatPercent(answer.median_error),
      FormatPercent(answer.largest_error), FormatPercent(answer.median_error_without_delays));
  if (trace.negative_durations > 0) {
    text += fmt::format(
        "{} of {} events end before they begin, within the clock tolerance. They count as 0 "
        "long.\n\n",
        trace.negative_durations, events);
  }
  text += FormatDoubts(answer);

  const replay::StragglerSlowdown& job = answer.job_slowdown;
  const auto count = static_cast<double>(steps.size());
  text += fmt::format(
      "straggler slowdown: {:.3f} (a step takes {} s instead of {} s on average, without host "
      "delays)\n\n",
      job.ratio(), FormatQuantity(ToSeconds(job.time) / count),
      FormatQuantity(ToSeconds(job.ideal) / count));

  Table bloat({"energy bloat", "of the energy"});
  bloat.AddRow({"intrinsic", FormatPercent(answer.intrinsic_j / answer.highest.energy_j)});
  bloat.AddRow({"extrinsic", FormatPercent(answer.extrinsic_j / answer.highest.energy_j)});
  bloat.AddRow({"together", FormatPercent(answer.saving(answer.bound_j))});
  text += bloat.Format() + "\n";

  Table table({"controller", "saving", "slower by", "energy"});
  const auto add = [&](std::string name, const Sums& sums) {
    table.AddRow({std::move(name), FormatPercent(answer.saving(sums.energy_j)),
                  FormatPercent(answer.slowdown(sums.time_s)), FormatQuantity(sums.energy_j, "J")});
  };
  add("none (highest clocks)", answer.highest);
  for (const replay::ControllerOutcome& controller : answer.what_if.controllers) {
    add(NameOf(controller), SumOf(controller.steps));
  }
  add("bound (no clocks can save more)", {answer.highest.time_s, answer.bound_j});
  text += table.Format() + "\n";

  text += fmt::format("The slowest pipeline changes {} times in {} steps.\n",
                      answer.what_if.slowest_changes, steps.size());
  text += fmt::format("Energies are those of {} GPUs of the model {}, one for each rank.\n",
                      trace.gpus(), answer.flags.gpu);
  if (answer.has_gaps) {
    text +=
        "Some steps were not recorded: the previous step of a controller is the previous recorded "
        "one.\n";
  }
  if (answer.flags.shows_steps) text += "\n" + FormatSteps(answer);
  return text;
}

std::string FormatJson(const Answer& answer) {
  ordered_json steps = ordered_json::array();
  for (std::size_t i = 0; i < answer.what_if.steps.size(); ++i) {
    const replay::StepBloat& step = answer.what_if.steps[i];
    ordered_json times = ordered_json::array();
    for (const Nanoseconds time : step.pipeline_times) times.push_back(ToSeconds(time));
    steps.push_back({{"step", step.number},
                     {"recorded_s", ToSeconds(step.recorded)},
                     {"replayed_s", ToSeconds(step.replayed)},
                     {"error", step.error()},
                     {"without_host_delays_s", ToSeconds(step.without_host_delays)},
                     {"ideal_s", ToSeconds(answer.slowdowns[i].ideal)},
                     {"straggler_slowdown", answer.slowdowns[i].ratio()},
                     {"slowest_dp_rank", step.slowest_dp_rank},
                     {"pipeline_times_s", std::move(times)},
                     {"energy_j", step.energy_j},
                     {"intrinsic_j", step.intrinsic_j},
                     {"extrinsic_j", step.extrinsic_j},
                     {"bound_j", step.bound_j}});
  }
  ordered_json controllers = ordered_json::array();
  for (const replay::ControllerOutcome& controller : answer.what_if.controllers) {
    ordered_json outcomes = ordered_json::array();
    for (const replay::StepOutcome& outcome : controller.steps) {
      outcomes.push_back({{"time_s", ToSeconds(outcome.time)},
                          {"energy_j", outcome.energy_j},
                          {"computing_j", outcome.computing_j},
                          {"waiting_j", outcome.waiting_j}});
    }
    const Sums sums = SumOf(controller.steps);
    controllers.push_back({{"name", NameOf(controller)},
                           {"delay_steps", controller.delay},
                           {"energy_j", sums.energy_j},
                           {"saving", answer.saving(sums.energy_j)},
                           {"slowdown", answer.slowdown(sums.time_s)},
                           {"steps", std::move(outcomes)}});
  }
  const ordered_json all{{"format", "perseus-replay"},
                         {"version", 1},
                         {"trace", answer.trace.name},
                         {"gpu", answer.flags.gpu},
                         {"pipelines", answer.trace.pipelines},
                         {"pp_ranks", answer.trace.pp_ranks},
                         {"negative_durations", answer.trace.negative_durations},
                         {"time_s", answer.highest.time_s},
                         {"ideal_s", ToSeconds(answer.job_slowdown.ideal)},
                         {"straggler_slowdown", answer.job_slowdown.ratio()},
                         {"energy_j", answer.highest.energy_j},
                         {"bound_j", answer.bound_j},
                         {"intrinsic", answer.intrinsic_j / answer.highest.energy_j},
                         {"extrinsic", answer.extrinsic_j / answer.highest.energy_j},
                         {"median_error", answer.median_error},
                         {"largest_error", answer.largest_error},
                         {"median_error_without_host_delays", answer.median_error_without_delays},
                         {"check_passed", answer.doubtful_steps.empty()},
                         {"doubtful_steps", answer.doubtful_steps},
                         {"slowest_dp_rank_changes", answer.what_if.slowest_changes},
                         {"controllers", std::move(controllers)},
                         {"steps", std::move(steps)}};
  return JsonText(all, 2) + "\n";
}

Result<void> RunReplay(const Streams& streams, ReplayFlags flags) {
  flags.reading.clock_tolerance = FromMilliseconds(flags.clock_tolerance_ms);
  PERSEUS_ASSIGN_OR_RETURN(const auto model, replay::FindJobPowerModel(flags.gpu));
  replay::JobTraceReader reader(flags.reading);
  for (const std::string& path : flags.paths) {
    PERSEUS_ASSIGN_OR_RETURN(const auto bytes, ReadFile(path));
    PERSEUS_RETURN_IF_ERROR(reader.Add(bytes, path));
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto trace, reader.Finish());
  PERSEUS_ASSIGN_OR_RETURN(const auto graph,
                           replay::BuildTraceGraph(trace, flags.reading.clock_tolerance));
  for (const std::string& name : trace.unused_ignored) {
    streams.Warn(fmt::format("--ignore {}: no event has this name", Excerpt(name)));
  }
  auto slowdowns = replay::StragglerSlowdowns(graph);
  if (!slowdowns) return Fail(slowdowns, InFile(trace.name));
  std::vector<int> delays{0, kReactive};
  for (const int delay : flags.delays) {
    if (std::ranges::find(delays, delay) == delays.end()) delays.push_back(delay);
  }
  PERSEUS_ASSIGN_OR_RETURN(auto what_if, replay::AnalyzeWhatIf(graph, model, delays));
  const Answer answer = Summarize(trace, flags, std::move(what_if), *std::move(slowdowns));
  return streams.Print(flags.as_json ? FormatJson(answer) : Wrapped(FormatText(answer)));
}

}  // namespace

Verb AddReplayVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<ReplayFlags>(program, "replay", kReplayAbout, kReplayExamples);
  flags->delays = {5};
  add("traces", flags->paths, "TRACE...",
      "Timeline (Chrome trace in JSON, gzip or not), or the traces of torch.profiler of all ranks",
      InputFile())
      ->required();
  add("--gpu", flags->gpu, "NAME", "The model of the GPUs (those of perseus synth)",
      OneOf(replay::JobPowerModelNames()))
      ->capture_default_str();
  add("--delay", flags->delays, "N",
      "Also a controller that acts on the step N steps before; may be repeated",
      WholeNumberIn({1, 1'000'000}))
      ->capture_default_str()
      ->allow_extra_args(false);
  add("--ignore", flags->reading.ignored, "NAME", "Ignore events with this name; may be repeated")
      ->allow_extra_args(false);
  add("--clock-tolerance", flags->clock_tolerance_ms, "MS",
      "The largest difference between the clocks of ranks, in ms",
      NumberIn({0, 60'000, "milliseconds"}))
      ->capture_default_str();
  verb->add_flag("--steps", flags->shows_steps, "Also print a line for each step");
  verb->add_flag("--json", flags->as_json, "Print JSON instead of the tables");
  return {verb, [flags = flags](const Streams& streams) { return RunReplay(streams, *flags); }};
}

}  // namespace perseus::cli
