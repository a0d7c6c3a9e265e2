#include "perseus/runtime/tuner/disturbance.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

namespace perseus::tuner {
namespace {

struct Cause {
  std::string_view name;  // In the rank log.
  std::string_view text;
  std::string_view remedy;
};
constexpr Cause kCauses[] = {
    {"temperature", "heat", "cool the GPU"},
    {"power_brake", "a power brake", "check the power supply of its board and rack"},
    {"", "something that its log does not name",
     "its client library is older than this program: install the same version everywhere"}};
constexpr Cause kAnyOther = {"other", "another program or a fault",
                             "perseus doctor on its host says more"};

}  // namespace

Disturbance DisturbanceOf(const LoggedRank& rank, std::int64_t first, std::int64_t last) {
  Disturbance all;
  for (std::int64_t number = first; number <= last; ++number) {
    const protocol::RanStep* step = rank.Find(number);
    if (step == nullptr) continue;
    ++all.of_steps;
    if (!step->IsDisturbed()) continue;
    ++all.steps;
    if (step->limited_by.empty()) all.causes.insert("");
    std::ranges::copy_if(step->limited_by, std::inserter(all.causes, all.causes.end()),
                         [](const std::string& name) { return name != "power"; });
  }
  return all;
}

std::string Describe(const Disturbance& disturbance) {
  std::vector<std::string_view> texts;
  std::vector<std::string_view> remedies;
  for (const std::string& name : disturbance.causes) {
    const auto* const known = std::ranges::find(kCauses, name, &Cause::name);
    const Cause& cause = known == std::end(kCauses) ? kAnyOther : *known;
    texts.push_back(cause.text);
    remedies.push_back(cause.remedy);
  }
  return fmt::format("{} held its clock down ({})", fmt::join(texts, " and "),
                     fmt::join(remedies, "; "));
}

}  // namespace perseus::tuner
