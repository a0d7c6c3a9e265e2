// The text before and after the data in the page. It must be the same as in web/src/report.html.
#pragma once

#include <string_view>

namespace perseus::report {

inline constexpr std::string_view kDataBegin =
    "<script type=\"application/json\" id=\"perseus-report\">";
inline constexpr std::string_view kDataEnd = "</script>";

}  // namespace perseus::report
