// Whose account pays for what a user costs the agent.
//
// Many systems give each user 65,536 subordinate user ids (/etc/subuid), and newuidmap(1) lets the
// user's processes run as any of them. A limit for each user id would then be no limit. So all ids
// of a range share one account.
//
// It reads the file alone, and asks no name service, which may be slow. Ranges of a directory
// service are unknown.
//
// Thread safety: as a value.
#pragma once

#include <sys/types.h>

#include <map>
#include <string_view>

namespace perseus::agent {

class SubordinateUsers {
 public:
  // `text`: that of /etc/subuid, with lines "ann:100000:65536". Ignores lines of another form.
  // Ranges that overlap become one.
  static SubordinateUsers Parse(std::string_view text);

  // The first id of the range that has `uid`. Without one, and for root, the id itself.
  uid_t AccountOf(uid_t uid) const;

 private:
  std::map<uid_t, uid_t> last_of_;  // By the first id of a range.
};

}  // namespace perseus::agent
