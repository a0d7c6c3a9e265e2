#include "perseus/base/wording.h"

#include <fmt/format.h>

#include "perseus/base/excerpt.h"

namespace perseus {

std::string DidYouMean(std::string_view name, std::span<const std::string_view> known) {
  const std::string_view nearest = NearestName(name, known);
  if (!nearest.empty()) return fmt::format(" (did you mean \"{}\"?)", nearest);
  return fmt::format(" (known: {})", fmt::join(known, ", "));
}

std::string Explained(std::string_view explanation) {
  constexpr std::size_t kLongest = 200;
  return explanation.size() <= kLongest && IsPrintable(explanation) ? std::string(explanation)
                                                                    : Excerpt(explanation);
}

}  // namespace perseus
