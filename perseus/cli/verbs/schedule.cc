// `perseus schedule` writes the schedule that a job really ran, or searches for a better one.
#include <fmt/format.h>

#include "perseus/base/file.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/runtime/tuner/ran_schedule.h"

namespace perseus::cli {
namespace {

constexpr const char* kScheduleAbout =
    "Write the schedule that a job really ran, from its rank logs, as the planner's input. This "
    "is\n"
    "the newest order of instructions that all ranks ran in several consecutive steps. Also says\n"
    "which steps had another order: an evaluation, or a batch with fewer microbatches. `search`\n"
    "finds the schedule whose plan needs the least energy, before a job runs.";
constexpr const char* kScheduleExamples =
    "Examples:\n"
    "  perseus schedule run -o order.csv\n"
    "  perseus plan profile.csv --schedule-file order.csv \\\n"
    "      --blocking-power 83.64 -o out\n"
    "  perseus schedule search profile.csv --microbatches 24 --blocking-power 83.64";

struct ScheduleFlags {
  std::string directory;
  std::string output;
};

Result<void> RunSchedule(const Streams& streams, const ScheduleFlags& flags) {
  if (flags.directory.empty()) {
    return Fail(
        "JOBDIR is missing (give the job's directory, or search for a schedule with perseus "
        "schedule search)");
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto logs,
                           tuner::JobLogs::Open(flags.directory, tuner::JobLogs::Job::kIsOver));
  PERSEUS_ASSIGN_OR_RETURN(const auto ran,
                           tuner::FindRanSchedule(logs, tuner::LoggedRanks(logs), flags.directory));
  const std::string csv = schedule::FormatSchedule(ran.schedule);
  if (flags.output.empty()) return streams.Print(csv);
  PERSEUS_RETURN_IF_ERROR(WriteFileAtomically(flags.output, csv));
  return streams.Print(tuner::Describe(ran) + fmt::format("wrote {}\n", flags.output));
}

}  // namespace

Verb AddScheduleVerb(CLI::App& program) {
  auto [verb, add, flags] =
      AddVerb<ScheduleFlags>(program, "schedule", kScheduleAbout, kScheduleExamples);
  AddJobDirectory(add, flags->directory);
  add("-o,--output", flags->output, "FILE", "The schedule file (CSV; default: standard output)");
  const Verb search = AddScheduleSearchVerb(*verb);
  return {verb, [flags = flags, search](const Streams& streams) {
            return search.flags->parsed() ? search.run(streams) : RunSchedule(streams, *flags);
          }};
}

}  // namespace perseus::cli
