// How much of the agent's time each user may take, so that one user's connections do not slow down
// the others. Users here are accounts (SubordinateUsers).
//
// Each user has a token bucket: a user starts with kBurst units, and receives kUnitsPerSecond.
// Connections, messages and access checks cost units in proportion to the agent's time that they
// take. One unit is about 0.05 ms of the event loop, so in the long run a user takes at most about
// 5 % of one core. Root has no limit, because root could stop the agent as well.
//
// Not thread safe. The caller passes the time.
#pragma once

#include <sys/types.h>

#include <map>
#include <string_view>

#include "perseus/base/units.h"

namespace perseus::agent {

class UserBudget {
 public:
  static constexpr double kUnitsPerSecond = 1'000;
  // The ranks of a node may all start at the same moment: 64 of them connect and acquire.
  static constexpr double kBurst = 10'000;

  static constexpr double kConnection = 4;
  static constexpr double kMessage = 1;
  // What a list of all GPUs costs in addition, for each GPU.
  static constexpr double kListedGpu = 0.2;
  // What a lease costs in addition: a check of the right to the GPU, and two writes to disk.
  static constexpr double kAcquire = 100;

  // Takes `cost` units and returns 0. If the user has fewer units, takes none, and returns the time
  // until the user has `cost` units.
  Nanoseconds Take(uid_t user, double cost, Nanoseconds now);

 private:
  struct Bucket {
    double units = kBurst;
    Nanoseconds at = 0;
  };

  void ForgetFull(Nanoseconds now);

  std::map<uid_t, Bucket> buckets_;  // A user without a bucket has kBurst.
  Nanoseconds next_forget_ = 0;
};

// The account that pays for what a user costs the agent.
//
// Many systems give each user 65,536 subordinate user ids (/etc/subuid). With newuidmap(1), the
// user's processes can run as any of these ids. A limit for each user id would then have no effect.
// So all ids of a range share one account.
//
// This class reads only the file. It asks no name service, because a name service may be slow. So
// it does not know the ranges of a directory service.
//
// Thread safety: as a value.
class SubordinateUsers {
 public:
  // `text`: the content of /etc/subuid, with lines such as "ann:100000:65536". Ignores lines of
  // another form. Merges ranges that overlap.
  static SubordinateUsers Parse(std::string_view text);

  // Returns the first id of the range that contains `uid`. If no range contains `uid`, and for
  // root, returns `uid`.
  uid_t AccountOf(uid_t uid) const;

 private:
  std::map<uid_t, uid_t> last_of_;  // Key: the first id of a range.
};

}  // namespace perseus::agent
