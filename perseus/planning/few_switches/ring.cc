#include "perseus/planning/few_switches/ring.h"

#include <cstdlib>
#include <utility>

namespace perseus::few_switches {

Ring MakeRing(const std::vector<int>& clocks) {
  Ring ring;
  for (std::size_t p = 0; p < clocks.size(); ++p) ring.push_back({static_cast<int>(p), clocks[p]});
  Normalize(ring);
  return ring;
}

std::vector<int> ClocksOf(const Ring& ring, int positions) {
  std::vector<int> clocks(At(positions), ring.back().clock);
  for (std::size_t j = 0; j < ring.size(); ++j) {
    const int end = j + 1 < ring.size() ? ring[j + 1].start : positions;
    for (int p = ring.size() == 1 ? 0 : ring[j].start; p < end; ++p) clocks[At(p)] = ring[j].clock;
  }
  return clocks;
}

void Normalize(Ring& ring) {
  // Insertion sort: the ring is nearly sorted, because a move changes one or two starts.
  for (std::size_t j = 1; j < ring.size(); ++j) {
    for (std::size_t k = j; k > 0 && ring[k].start < ring[k - 1].start; --k) {
      std::swap(ring[k], ring[k - 1]);
    }
  }
  // Keeps only the segments whose clock differs from the clock of the previous segment.
  int before = ring.back().clock;
  std::size_t kept = 0;
  for (const Segment& segment : ring) {
    if (segment.clock != before) ring[kept++] = segment;
    before = segment.clock;
  }
  if (kept == 0) ring[kept++] = {0, before};
  ring.resize(kept);
}

std::size_t SegmentAt(const Ring& ring, int position) {
  std::size_t found = ring.size() - 1;
  for (std::size_t j = 0; j < ring.size() && ring[j].start <= position; ++j) found = j;
  return ring.front().start <= position ? found : ring.size() - 1;
}

int LengthOf(const Ring& ring, std::size_t segment, int positions) {
  if (ring.size() == 1) return positions;
  const int next = ring[After(ring, segment)].start;
  return Wrap(next - ring[segment].start, positions);
}

void RemoveSegment(Ring& ring, std::size_t segment) {
  const int clock = ring[segment].clock;
  const int before = ring[Before(ring, segment)].clock;
  const int after = ring[After(ring, segment)].clock;
  ring[segment].clock = std::abs(before - clock) <= std::abs(after - clock) ? before : after;
  Normalize(ring);
}

void Shrink(Ring& ring, int positions, int most_changes) {
  while (ring.size() > MostSegments(most_changes)) {
    std::size_t shortest = 0;
    for (std::size_t j = 1; j < ring.size(); ++j) {
      if (LengthOf(ring, j, positions) < LengthOf(ring, shortest, positions)) shortest = j;
    }
    RemoveSegment(ring, shortest);
  }
}

Difference Compare(const Ring& a, const Ring& b, int positions) {
  // The last segment wraps around to the first position.
  if (a.size() == 1 || b.size() == 1 || a.back().clock != b.back().clock) return {0, positions, 0};
  const std::size_t most = std::min(a.size(), b.size());
  std::size_t same = 0;
  while (same < most && a[same] == b[same]) ++same;
  std::size_t same_at_end = 0;
  while (same + same_at_end < most &&
         a[a.size() - 1 - same_at_end] == b[b.size() - 1 - same_at_end])
    ++same_at_end;
  return {same > 0 ? a[same - 1].start : 0,
          same_at_end > 0 ? a[a.size() - same_at_end].start : positions, same};
}

}  // namespace perseus::few_switches
