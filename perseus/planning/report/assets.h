// The output of the npm build of web/, as text in the program. Empty if the build had no npm.
#pragma once

#include <string_view>

namespace perseus::report {

// The text before and after the data in the page. It must be the same as in web/src/report.html.
inline constexpr std::string_view kDataBegin =
    "<script type=\"application/json\" id=\"perseus-report\">";
inline constexpr std::string_view kDataEnd = "</script>";

}  // namespace perseus::report

namespace perseus::report::assets {

extern const std::string_view kReportPage;  // HTML with an empty element for the data.
extern const std::string_view
    kFigures;  // JavaScript (ES5) that defines figure(name, data, options).

}  // namespace perseus::report::assets
