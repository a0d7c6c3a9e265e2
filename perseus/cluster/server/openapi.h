// docs/openapi.yaml, as it was when the program was built.
#pragma once

#include <string_view>

namespace perseus::server {

std::string_view OpenApiDocument();

}  // namespace perseus::server
