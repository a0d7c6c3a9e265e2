#include "tests/oracle/published_frontier.h"

#include <charconv>
#include <limits>
#include <string>

#include "perseus/base/file.h"
#include "perseus/planning/frontier/walk.h"

namespace perseus {

std::vector<PublishedPoint> ReadPublishedFrontier(const std::filesystem::path& path) {
  const Result<std::string> text = ReadFile(path);
  if (!text || !text->starts_with("time,energy\n")) return {};
  const char* const end = text->data() + text->size();
  std::vector<PublishedPoint> points;
  for (std::size_t line = text->find('\n') + 1; line < text->size();
       line = text->find('\n', line) + 1) {
    PublishedPoint point;
    const auto time = std::from_chars(text->data() + line, end, point.time_s);
    if (time.ec != std::errc() || time.ptr == end || *time.ptr != ',') return {};
    const auto energy = std::from_chars(time.ptr + 1, end, point.energy_j);
    if (energy.ec != std::errc() || energy.ptr == end || *energy.ptr != '\n') return {};
    points.push_back(point);
  }
  return points;
}

Bounds BoundsAt(std::span<const PublishedPoint> points, schedule::InstructionGraph graph,
                const MeasuredJob& job) {
  for (schedule::OptionSet& set : graph.option_sets) {
    for (profile::Option& option : set.options) {
      option.time -= option.time % job.planner_unit;
      option.energy_j = profile::EffectiveEnergy(option, job.blocking_power_w);
    }
  }
  const frontier::Network network = NetworkOf(graph, 0);  // The energies are already effective.
  double least_effective_energy_j = 0;
  for (const schedule::InstructionNode& instruction : graph.instructions) {
    least_effective_energy_j +=
        network.curves[static_cast<std::size_t>(instruction.option_set)].least_effective_energy_j;
  }
  Bounds bounds;
  frontier::Walk walk(network);
  for (const PublishedPoint& point : points) {
    const Nanoseconds time = ToNanoseconds(point.time_s);
    while (walk.time() > time && !walk.finished()) walk.Advance(time);
    bounds.energies_j.push_back(walk.time() > time
                                    ? std::numeric_limits<double>::infinity()
                                    : least_effective_energy_j + ToJoules(walk.extra_energy()) +
                                          job.blocking_power_w * kMeasuredStages * point.time_s);
  }
  while (!walk.finished()) walk.Advance(0);
  bounds.least_time_s = ToSeconds(walk.time());
  return bounds;
}

}  // namespace perseus
