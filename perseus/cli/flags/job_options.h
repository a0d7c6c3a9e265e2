// The flags that describe a job, which several verbs share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/terminal/standard_output.h"
#include "perseus/planning/job/job_setup.h"

namespace perseus::cli {

// Whether the verb has a profile when it reads the job. A profile says how many pp_ranks exist.
// kMaybeWithProfile: it may have one, which a search for a schedule needs.
enum class JobComes { kWithProfile, kWithoutProfile, kMaybeWithProfile };

// Adds all flags of a job except the profile, which is an argument of some verbs and a flag of
// others.
void AddJobFlags(CLI::App& verb, job::JobSettings& flags, JobComes comes = JobComes::kWithProfile);

// Adds the profile as an argument.
void AddProfile(const FlagAdder& add, job::JobSettings& flags);

// Adds those of these flags that also override the job of a plan: what its GPUs and the fixed
// instructions need.
void AddModelFlags(CLI::App& verb, job::JobSettings& flags);

// LoadJob for a verb that plans. Refuses input that cannot be (job/plausibility.h), and prints a
// warning on standard error for each likely mistake.
Result<job::LoadedJob> LoadJobToPlan(const Streams& streams, const job::JobSettings& flags,
                                     const schedule_search::SearchEffort& search = {});

// An error names a value by its key (RenameKeys in base/wording.h). Returns the message with the
// flags of the verb in their place: "add `microbatches = 96`" becomes "add --microbatches 96". The
// key of a job file that the user gave stays, unless the flag was given, too.
std::string WithFlagNames(const CLI::App& verb, std::string_view message);

// Prints warnings. Fails as CheckPlausible does.
Result<void> WarnIfImplausible(const Streams& streams, const job::LoadedJob& job);

}  // namespace perseus::cli
