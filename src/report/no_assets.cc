// In the place of what npm makes, where there is no npm.
#include "perseus/report/assets.h"

namespace perseus::assets {

const std::string_view kReportPage;
const std::string_view kFigures;

}  // namespace perseus::assets
