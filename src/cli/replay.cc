// `perseus replay`: what a recorded job wasted, and who could have saved it.
#include <fmt/format.h>

#include <memory>

#include "perseus/base/file.h"
#include "perseus/emulator/job_trace.h"
#include "perseus/emulator/trace_replay.h"
#include "standard_output.h"
#include "table.h"
#include "verbs.h"

namespace perseus::cli {
namespace {

struct ReplayFlags {
  std::string path;
};

Result<void> RunReplay(const ReplayFlags& flags) {
  const auto bytes = ReadFile(flags.path);
  if (!bytes) return Fail(bytes);
  const auto trace = ParseJobTrace(*bytes, flags.path);
  if (!trace) return Fail(trace);
  const auto graph = BuildTraceGraph(*trace);
  if (!graph) return Fail(graph);
  std::string text;
  for (const StepGraph& step : graph->steps) {
    const double recorded = ToSeconds(step.step->time);
    const double full = ToSeconds(ReplayStep(step, step.durations).time);
    const double bare = ToSeconds(ReplayStep(step, step.durations, HostDelays::kNone).time);
    text += fmt::format("{} {} {} {}\n", step.step->number, recorded,
                        FormatPercent(full / recorded - 1), FormatPercent(bare / recorded - 1));
  }
  return Print(text);
}

}  // namespace

Verb AddReplayVerb(CLI::App& program) {
  auto flags = std::make_shared<ReplayFlags>();
  CLI::App* verb = program.add_subcommand("replay", "Replay");
  verb->add_option("trace", flags->path, "Trace")->type_name("TRACE")->required();
  return {verb, [flags] { return RunReplay(*flags); }};
}

}  // namespace perseus::cli
