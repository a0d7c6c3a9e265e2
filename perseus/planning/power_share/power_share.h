// Divides a power cap among jobs, with the least loss of work.
//
// PROBLEM
//   A job with the frontier E(T) has the rate r = 1/T and the mean power p = E/T. A segment
//   E = a - b*T of the frontier is p = a*r - b, so the corners of the frontier are the corners of
//   p(r), and p is convex. Minimize the lost work
//
//     sum of w_j * (1 - r_j / r_j_max)     such that     sum of p_j(r_j) <= cap.
//
// IDEA
//   Start each job at its least power. Each segment of each p_j gives work for watts at a fixed
//   price, in work per watt, and within a job the prices fall as the rate rises. So the best
//   division takes the segments of all jobs with the highest prices, until the cap is reached. As
//   in the search for a median, this needs no sort: half of the segments are either all taken, or
//   none of them is.
//
// PROOF
//   For every price, the following is a lower bound on the loss of every division (weak duality).
//   Each job alone chooses its best point:
//
//     sum of min over r (w_j * (1 - r / r_j_max) + price * p_j(r)) - price * cap.
//
//   At the price of the segment that is taken in part, the bound is equal to the loss, apart from
//   the rounding of doubles. A Division has both numbers.
//
// LIMITS
//   Jobs are not paused: no job gets less than its least power.
//
// n points take O(n log n) time, and O(n) if each job's points are in order. Thread safety: the
// function has no state.
#pragma once

#include <span>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::power_share {

// A point of a job's frontier.
struct Point {
  double time_s = 0;   // The iteration time.
  double power_w = 0;  // The mean power of the whole job.
};

struct Job {
  std::vector<Point> points;  // In any order. Points above the convex hull have no effect.
  // The work of the job in the unit of the loss, such as its number of GPUs.
  double weight = 1;
};

struct Division {
  std::vector<Point> shares;  // In the order of the jobs.
  double power_w = 0;         // The sum of the shares. At most the cap, apart from rounding.
  double loss = 0;
  double bound = 0;  // No division loses less.
  // How much work one more watt gives back. 0 if all jobs have their least time.
  double price = 0;
};

// Returns the division with the least loss. If the jobs need less than the cap at their least
// times, all jobs get their least times. Fails (kUnreachable) if the cap is below the sum of the
// least powers, and states this sum. Fails (kInput) for a job without points, and for a number that
// is not positive and finite.
Result<Division> Divide(std::span<const Job> jobs, double cap_w);

}  // namespace perseus::power_share
