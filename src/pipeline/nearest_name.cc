#include "perseus/pipeline/nearest_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace perseus {
namespace {

// Insertions, deletions and substitutions that lead from one to the other (Levenshtein).
std::size_t EditDistance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t substitution = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substitution, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string SuggestName(std::string_view name, std::span<const std::string_view> known) {
  constexpr std::size_t kMostTypingErrors = 2;
  constexpr std::size_t kLongestName = 64;  // A longer one is no typing error; spare the effort.
  std::size_t least = kMostTypingErrors + 1;
  std::string_view nearest;
  if (name.size() <= kLongestName) {
    for (std::string_view candidate : known) {
      const std::size_t distance = EditDistance(name, candidate);
      if (distance < least) {
        least = distance;
        nearest = candidate;
      }
    }
  }
  if (!nearest.empty()) return fmt::format(" (did you mean \"{}\"?)", nearest);
  return fmt::format(" (known: {})", fmt::join(known, ", "));
}

}  // namespace perseus
