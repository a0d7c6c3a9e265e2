// The figure of a qualification (SVG): how long switches take (the distribution of each case), what
// changes cost the work beside them, and power by clock.
//
// The charts of the report page (web/) draw plans and profiles in a browser. This figure has no
// page and none of their data, so it is drawn here.
#pragma once

#include <string>

#include "perseus/runtime/qualifier/qualification.h"

namespace perseus::qualifier {

std::string DrawQualification(const Qualification& qualification);

}  // namespace perseus::qualifier
