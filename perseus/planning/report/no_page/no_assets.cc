// In the place of what npm makes, where there is no npm.
#include "perseus/planning/report/assets.h"

namespace perseus::report::assets {

const std::string_view kReportPage;
const std::string_view kFigures;

}  // namespace perseus::report::assets
