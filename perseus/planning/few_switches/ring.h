// The clocks of a pp_rank over an iteration that repeats: a ring of segments.
//
// A segment is a run of instructions at one clock. A ring of m segments has m changes, and a ring
// of one segment has none. So "at most N changes" means "at most max(N, 1) segments".
//
// Thread safety: functions without shared state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "perseus/base/index.h"

namespace perseus::few_switches {

struct Segment {
  int start = 0;  // The first position. The segment ends where the next segment starts.
  int clock = 0;  // The number of a clock in rank_clocks.h.
  bool operator==(const Segment&) const = default;
};
// Sorted by start. Neighbors have different clocks. The last segment may continue at position 0. A
// ring of one segment starts at 0.
using Ring = std::vector<Segment>;

// The maximum number of segments of a ring with at most `most_changes` changes.
inline std::size_t MostSegments(int most_changes) { return At(std::max(most_changes, 1)); }

// MakeRing converts the clocks of a pp_rank ([position]) to a ring. ClocksOf converts them back.
Ring MakeRing(const std::vector<int>& clocks);
std::vector<int> ClocksOf(const Ring& ring, int positions);

// Sorts the segments by start, and joins neighbors of the same clock. Fast if the ring is nearly
// sorted.
void Normalize(Ring& ring);

// Maps a position to the range 0 .. positions - 1. Requires a position from -positions to 2 *
// positions - 1.
inline int Wrap(int position, int positions) {
  if (position < 0) return position + positions;
  return position < positions ? position : position - positions;
}
// The segment after the given one in the ring, and the segment before it.
inline std::size_t After(const Ring& ring, std::size_t segment) {
  return segment + 1 < ring.size() ? segment + 1 : 0;
}
inline std::size_t Before(const Ring& ring, std::size_t segment) {
  return segment > 0 ? segment - 1 : ring.size() - 1;
}

std::size_t SegmentAt(const Ring& ring, int position);
int LengthOf(const Ring& ring, std::size_t segment, int positions);

// Gives the segment the clock of one of its two neighbors, so that it becomes a part of this
// neighbor. Chooses the neighbor with the nearer clock. Requires more than one segment.
void RemoveSegment(Ring& ring, std::size_t segment);

// Removes the shortest segments, until at most `most_changes` changes remain.
void Shrink(Ring& ring, int positions, int most_changes);

// The range in which two rings differ: only at the positions from `begin` to `end` - 1. A move
// changes few segments of a ring, so other code can skip the segments outside of this range.
struct Difference {
  int begin = 0;
  int end = 0;
  std::size_t first_boundary = 0;  // The first boundary after `begin`, in both rings.
};
Difference Compare(const Ring& a, const Ring& b, int positions);

}  // namespace perseus::few_switches
