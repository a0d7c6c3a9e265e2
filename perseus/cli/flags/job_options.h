// The flags that describe a job, which several verbs share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/terminal/standard_output.h"
#include "perseus/planning/job/job_setup.h"

namespace perseus::cli {

// Whether the verb has a profile when it reads the job. A profile says how many pp_ranks exist.
// kMaybeWithProfile: the verb may have a profile, which a search for a schedule needs.
enum class JobComes { kWithProfile, kWithoutProfile, kMaybeWithProfile };

// Adds all flags of a job except the profile. The profile is an argument of some verbs and a flag
// of other verbs.
void AddJobFlags(CLI::App& verb, job::JobSettings& flags, JobComes comes = JobComes::kWithProfile);

// Replaces --schedule of AddJobFlags by a flag that may be repeated.
void AddSchedulesFlag(CLI::App& verb, std::vector<std::string>& schedules);

// Adds the profile as an argument.
void AddProfile(const FlagAdder& add, job::JobSettings& flags);

// Adds the flags of a job that can also override the job of a plan: the facts of its GPUs, and the
// times of fixed instructions.
void AddModelFlags(CLI::App& verb, job::JobSettings& flags);

// Loads the job for a verb that plans. Refuses implausible input (job/plausibility.h), and prints a
// warning on standard error for each likely mistake.
Result<job::LoadedJob> LoadJobToPlan(const Streams& streams, const job::JobSettings& flags,
                                     const schedule_search::SearchEffort& search = {});

// Returns the message with flags of the verb in place of keys (RenameKeys in base/wording.h): "add
// `microbatches = 96`" becomes "add --microbatches 96". If the user gave a job file, the message
// keeps a key of this file, unless the user also gave the flag.
std::string WithFlagNames(const CLI::App& verb, std::string_view message);

// Prints warnings. Fails as CheckPlausible does.
Result<void> WarnIfImplausible(const Streams& streams, const job::LoadedJob& job);

}  // namespace perseus::cli
