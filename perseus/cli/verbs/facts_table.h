// The tables of hardware facts that `perseus qualify` prints.
#pragma once

#include <string>

#include "perseus/planning/hardware_facts/hardware_facts.h"

namespace perseus::cli {

std::string FormatFacts(const hardware_facts::HardwareFacts& facts);

}  // namespace perseus::cli
