// The text of docs/openapi.yaml at the time of the build.
#pragma once

#include <string_view>

namespace perseus::server {

std::string_view OpenApiDocument();

}  // namespace perseus::server
