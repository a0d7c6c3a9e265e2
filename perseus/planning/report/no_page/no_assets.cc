// Replaces the output of npm in a build without npm.
#include "perseus/planning/report/assets.h"

namespace perseus::report::assets {

const std::string_view kReportPage;
const std::string_view kFigures;

}  // namespace perseus::report::assets
