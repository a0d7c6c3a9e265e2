// `perseus trace` writes a timeline of what a job really ran.
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>

#include "perseus/base/file.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/verbs/named_plans.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/tuner/run_trace.h"

namespace perseus::cli {
namespace {

constexpr const char* kTraceAbout =
    "Write a timeline of what a job really ran, from its rank logs: instructions, requested and\n"
    "applied clocks, power, and the plan for comparison. Open it with https://ui.perfetto.dev.";
constexpr const char* kTraceExamples =
    "  perseus trace run -o trace.json                  # the last 5 steps\n"
    "  perseus trace run --from 100 --to 120 --plan out/plans/no-slowdown.json \\\n"
    "      -o trace.json";

constexpr int kStepsByDefault = 5;

struct TraceFlags {
  std::string directory;
  std::string output;
  std::string plan;
  std::optional<int> from;
  std::optional<int> to;
};

// Returns the plan of --plan. Without this flag, returns the plans of the active assignment,
// because pipelines may follow different plans.
Result<std::vector<plan_file::PlanFile>> FindPlans(const TraceFlags& flags) {
  std::set<std::filesystem::path> paths;
  if (flags.plan.empty()) {
    const protocol::AssignmentPlaces places = protocol::FindPlaces(flags.directory);
    PERSEUS_ASSIGN_OR_RETURN(const auto assignment, protocol::ReadAssignment(places));
    if (assignment && !assignment->plan.empty()) {
      paths.insert(protocol::PlaceOfPlan(places, *assignment, assignment->plan) / assignment->plan);
    }
    if (assignment) {
      for (const auto& [pipeline, plan] : assignment->plans) {
        paths.insert(protocol::PlaceOfPlan(places, *assignment, plan) / plan);
      }
    }
  } else {
    paths.insert(flags.plan);
  }
  std::vector<plan_file::PlanFile> plans;
  for (const std::filesystem::path& path : paths) {
    PERSEUS_ASSIGN_OR_RETURN(plans.emplace_back(), ReadPlan(path.string()));
  }
  return plans;
}

Result<void> RunTrace(const Streams& streams, const TraceFlags& flags) {
  PERSEUS_RETURN_IF_ERROR(CheckReplacesNoInput(flags.output, {flags.plan}));
  PERSEUS_ASSIGN_OR_RETURN(const auto logs,
                           tuner::JobLogs::Open(flags.directory, tuner::JobLogs::Job::kIsOver));
  PERSEUS_ASSIGN_OR_RETURN(const auto plans, FindPlans(flags));
  tuner::TraceRange range;
  range.last = flags.to.value_or(static_cast<int>(logs.LastStep(logs.Alive())));
  range.first = flags.from.value_or(
      static_cast<int>(std::max<std::int64_t>(0, range.last - kStepsByDefault + 1)));
  if (range.first > range.last && !flags.to) {
    return Fail("--from {} is after the last step, {} (give one up to it)", range.first,
                range.last);
  }
  if (range.first > range.last) {
    return Fail("--from {} is after --to {} (swap them)", range.first, range.last);
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto trace, tuner::FormatRunTrace(logs, range, plans));
  if (auto written = WriteFileAtomically(flags.output, trace); !written) return written;
  return streams.Print(fmt::format("wrote steps {} to {} of {} ranks to {}\n", range.first,
                                   range.last, logs.ranks().size(), flags.output));
}

}  // namespace

Verb AddTraceVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<TraceFlags>(program, "trace", kTraceAbout, kTraceExamples);
  const auto step = WholeNumberIn({0, 2'000'000'000});
  AddJobDirectory(add, flags->directory)->required();
  add("-o,--output", flags->output, "FILE", "The trace (JSON)")->required();
  add("--plan", flags->plan, "FILE", "The plan to show (default: those in force)", InputFile());
  add("--from", flags->from, "N", "First step (default: 5 before the end)", step);
  add("--to", flags->to, "N", "Last step (default: the last one)", step);
  return {verb, [flags = flags](const Streams& streams) { return RunTrace(streams, *flags); }};
}

}  // namespace perseus::cli
