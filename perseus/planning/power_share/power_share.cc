#include "perseus/planning/power_share/power_share.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace perseus::power_share {
namespace {

// A corner of p(r).
struct Corner {
  double rate = 0;  // Iterations per second.
  double power_w = 0;
};

// Whether `middle` is on or above the line from `left` to `right`.
bool IsAbove(const Corner& left, const Corner& middle, const Corner& right) {
  return (middle.power_w - left.power_w) * (right.rate - left.rate) >=
         (right.power_w - left.power_w) * (middle.rate - left.rate);
}

// Returns the corners of the lower hull, from the least power to the greatest rate.
std::vector<Corner> HullOf(const std::vector<Point>& points) {
  std::vector<Corner> corners;
  corners.reserve(points.size());
  for (const Point& point : points) corners.push_back({1 / point.time_s, point.power_w});
  const auto is_faster = [](const Corner& a, const Corner& b) {
    return a.rate != b.rate ? a.rate > b.rate : a.power_w < b.power_w;
  };
  if (!std::ranges::is_sorted(corners, is_faster)) std::ranges::sort(corners, is_faster);
  // From the fastest point on. A slower point that draws as much is useless. The hull is never
  // longer than what was read of the corners.
  auto end = corners.begin();
  for (const Corner& corner : corners) {
    if (end != corners.begin() && corner.power_w >= end[-1].power_w) continue;
    while (end - corners.begin() >= 2 && IsAbove(corner, end[-1], end[-2])) --end;
    *end++ = corner;
  }
  corners.erase(end, corners.end());
  std::ranges::reverse(corners);
  return corners;
}

// A part of p(r) between two corners of a job.
struct Segment {
  std::size_t job = 0;
  double rate = 0;
  double power_w = 0;
  double price = 0;  // Work for a watt.
};

Result<void> CheckJobs(std::span<const Job> jobs) {
  const auto is_positive = [](double number) { return number > 0 && std::isfinite(number); };
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].points.empty()) return Fail("job {} has no points (give its frontier)", i);
    for (const Point& point : jobs[i].points) {
      if (is_positive(point.time_s) && is_positive(point.power_w) && is_positive(jobs[i].weight)) {
        continue;
      }
      return Fail("job {} has a point of {} s and {} W, with the weight {} (give positive numbers)",
                  i, point.time_s, point.power_w, jobs[i].weight);
    }
  }
  return {};
}

// The lower bound at a price (see the header).
double BoundAt(std::span<const Job> jobs, const std::vector<std::vector<Corner>>& hulls,
               double price, double cap_w) {
  double bound = -price * cap_w;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const double work = jobs[i].weight / hulls[i].back().rate;  // For each unit of the rate.
    double least = std::numeric_limits<double>::infinity();
    for (const Corner& corner : hulls[i]) {
      least = std::min(least, price * corner.power_w - work * corner.rate);
    }
    bound += jobs[i].weight + least;
  }
  return bound;
}

std::vector<Segment> SegmentsOf(std::span<const Job> jobs,
                                const std::vector<std::vector<Corner>>& hulls) {
  std::vector<Segment> segments;
  std::size_t most = 0;
  for (const std::vector<Corner>& hull : hulls) most += hull.size();
  segments.reserve(most);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const double work = jobs[i].weight / hulls[i].back().rate;
    for (std::size_t k = 1; k < hulls[i].size(); ++k) {
      const double rate = hulls[i][k].rate - hulls[i][k - 1].rate;
      const double power_w = hulls[i][k].power_w - hulls[i][k - 1].power_w;
      segments.push_back({i, rate, power_w, work * rate / power_w});
    }
  }
  return segments;
}

// Moves the segments that `left_w` pays for to the front, those with the highest prices first.
// Returns their number, and leaves the watts that pay for a part of the next one.
std::size_t TakeDearest(std::vector<Segment>& segments, double& left_w) {
  // Jobs at equal prices get their watts in the order of the jobs.
  const auto is_dearer = [](const Segment& a, const Segment& b) {
    return a.price != b.price ? a.price > b.price : a.job < b.job;
  };
  // Those before `first` are taken, and those from `last` on are not.
  auto first = segments.begin();
  auto last = segments.end();
  while (first != last) {
    const auto middle = first + (last - first) / 2;
    std::nth_element(first, middle, last, is_dearer);
    double power_w = 0;
    for (auto segment = first; segment <= middle; ++segment) power_w += segment->power_w;
    if (power_w <= left_w) {
      left_w -= power_w;
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return static_cast<std::size_t>(first - segments.begin());
}

}  // namespace

Result<Division> Divide(std::span<const Job> jobs, double cap_w) {
  PERSEUS_RETURN_IF_ERROR(CheckJobs(jobs));
  std::vector<std::vector<Corner>> hulls;
  std::vector<Corner> reached;
  double least_w = 0;
  for (const Job& job : jobs) {
    hulls.push_back(HullOf(job.points));
    reached.push_back(hulls.back().front());
    least_w += reached.back().power_w;
  }
  if (cap_w < least_w) {
    return FailAs(ErrorKind::kUnreachable,
                  "a cap of {} W is below the least power of the jobs, {:.0f} W (allow that much, "
                  "or pause or end a job)",
                  cap_w, std::ceil(least_w));
  }
  double left_w = cap_w - least_w;
  Division division;
  std::vector<Segment> segments = SegmentsOf(jobs, hulls);
  const std::size_t taken = TakeDearest(segments, left_w);
  const auto take = [&reached](const Segment& segment, double part) {
    reached[segment.job].rate += part * segment.rate;
    reached[segment.job].power_w += part * segment.power_w;
  };
  for (std::size_t i = 0; i < taken; ++i) take(segments[i], 1);
  if (taken < segments.size()) {
    take(segments[taken], left_w / segments[taken].power_w);
    division.price = segments[taken].price;
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    division.shares.push_back({1 / reached[i].rate, reached[i].power_w});
    division.power_w += reached[i].power_w;
    division.loss += jobs[i].weight * (1 - reached[i].rate / hulls[i].back().rate);
  }
  division.bound = BoundAt(jobs, hulls, division.price, cap_w);
  return division;
}

}  // namespace perseus::power_share
