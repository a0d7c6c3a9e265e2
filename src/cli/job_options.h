// The flags that describe a job, which several verbs share.
#pragma once

#include <CLI/CLI.hpp>

#include "perseus/plan/job_setup.h"

namespace perseus::cli {

// Adds all but the profile, which is an argument of one verb and a flag of the other.
void AddJobFlags(CLI::App& verb, JobFlags& flags);

}  // namespace perseus::cli
