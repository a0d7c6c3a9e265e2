// `perseus schedule search`: a part of the verb `schedule`.
#pragma once

#include "perseus/cli/verbs/verbs.h"

namespace perseus::cli {

// Adds it to the verb `schedule`.
Verb AddScheduleSearchVerb(CLI::App& schedule);

}  // namespace perseus::cli
