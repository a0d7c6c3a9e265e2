// Environment variables.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

namespace perseus {

// The value of the variable, or `otherwise` if it is not set or empty.
inline std::string EnvironmentOr(const char* variable, std::string_view otherwise = "") {
  const char* const value = std::getenv(variable);
  return std::string(value != nullptr && *value != '\0' ? value : otherwise);
}

}  // namespace perseus
