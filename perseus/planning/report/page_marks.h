// Where the data stands in the page; web/src/report.html has the same.
#pragma once

#include <string_view>

namespace perseus::report {

inline constexpr std::string_view kDataBegin =
    "<script type=\"application/json\" id=\"perseus-report\">";
inline constexpr std::string_view kDataEnd = "</script>";

}  // namespace perseus::report
