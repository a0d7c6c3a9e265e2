#pragma once
#include <cstdint>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/frontier/network.h"

namespace perseus {

struct WalkStatistics {
  std::int64_t pivots = 0;
  std::int64_t degenerate = 0;
  std::int64_t same_arc = 0;
  std::int64_t nodes_moved = 0;
  std::int64_t path_length = 0;
  std::int64_t heap_pushes = 0;
  std::int64_t longest_stall = 0;
};

class Walk {
 public:
  explicit Walk(const Network& network);

  Nanoseconds time() const { return time_; }
  Microwatts price() const { return price_; }
  Femtojoules extra_energy() const { return energy_; }
  bool at_least_time() const { return at_end_; }
  void Advance(Nanoseconds stop);
  std::vector<Nanoseconds> EventTimes() const;
  const WalkStatistics& statistics() const { return statistics_; }

 private:
  static constexpr Microwatts kUnbounded = Microwatts{1} << 61;
  struct ArcState {
    std::int32_t tail;
    std::int32_t head;
    std::int32_t first_vertex;
    std::int32_t last;
    std::int32_t position;  // 2j: in a tree at vertex j; 2j+1: segment after vertex j
    Nanoseconds queued = -1;
  };
  struct Event {
    Nanoseconds time;
    std::int32_t arc;
    bool operator<(const Event& o) const { return time < o.time; }
  };
  struct Link {  // from a node to its parent in the tree
    Microwatts up = 0;    // how much more can flow from here to the parent
    Microwatts down = 0;  // and from the parent to here
    std::int32_t parent = -1, arc = -1;
  };
  struct Family {
    std::int32_t first_child = -1, next = -1, prev = -1;
  };
  struct Neighbor { std::int32_t node, arc; };
  Nanoseconds TimeOf(std::int32_t v) const { return node_time_[v] - (late_[v] ? shift_ : 0); }
  Nanoseconds Length(const ArcState& a) const { return TimeOf(a.head) - TimeOf(a.tail); }
  void Attach(std::int32_t node, std::int32_t parent);
  void Detach(std::int32_t node);
  Nanoseconds EventTime(const ArcState& a) const;
  void Watch(std::int32_t arc);
  void Pivot(std::int32_t entering);

  std::vector<ArcState> arcs_;
  std::vector<Nanoseconds> times_;
  std::vector<Microwatts> slopes_;
  std::vector<Nanoseconds> node_time_;
  std::vector<std::uint8_t> late_;
  std::vector<Link> links_;
  std::vector<Family> family_;
  std::vector<std::int32_t> first_incident_;
  std::vector<Neighbor> incident_;
  std::vector<std::int32_t> moved_;
  std::vector<Event> heap_;
  std::int32_t source_, sink_;
  Nanoseconds shift_ = 0;
  Nanoseconds time_ = 0;
  Microwatts price_ = 0;
  Femtojoules energy_ = 0;
  std::int64_t stall_ = 0;
  bool at_end_ = false;
  WalkStatistics statistics_;
};

}  // namespace perseus
