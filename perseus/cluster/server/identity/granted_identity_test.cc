// Tests the rights that several grants give together. They never give more than each grant gives
// alone.
#include "perseus/cluster/server/identity/granted_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace perseus::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Identity Granted(const std::string& grants, const std::vector<std::string>& groups) {
  const auto settings =
      ReadIdentitySettings("[proxy]\nsocket = \"/run/x\"\n" + grants, "identities.toml");
  EXPECT_TRUE(settings) << settings.error().Message();
  const auto identity = PersonIdentity(settings->proxy->grants, "u-1", groups, 1000);
  EXPECT_TRUE(identity);
  return *identity;
}

constexpr const char* kReaders = R"(
[[proxy.grant]]
group = "a"
scope = "read"
owner = "team-a"
jobs = ["a-*"]
[[proxy.grant]]
group = "b"
scope = "read"
owner = "team-b"
[[proxy.grant]]
group = "c"
scope = "read"
owner = "team-c"
jobs = ["a-*"]
[[proxy.grant]]
group = "all-a"
scope = "read"
jobs = ["a-*"]
[[proxy.grant]]
group = "all"
scope = "read"
)";

TEST(GrantedIdentity, BoundsOfDifferentGrantsDoNotMix) {
  // All jobs of team-a would be more than the first grant gives.
  const Identity two = Granted(kReaders, {"a", "b"});
  EXPECT_THAT(two.owners, ElementsAre("team-a"));
  EXPECT_THAT(two.jobs, ElementsAre("a-*"));
}

TEST(GrantedIdentity, OwnersOfTheSameJobsAddUp) {
  const Identity both = Granted(kReaders, {"a", "c"});
  EXPECT_THAT(both.owners, ElementsAre("team-a", "team-c"));
  EXPECT_THAT(both.jobs, ElementsAre("a-*"));
  const Identity of_all = Granted(kReaders, {"a", "all-a", "c"});
  EXPECT_THAT(of_all.owners, IsEmpty());
  EXPECT_THAT(of_all.jobs, ElementsAre("a-*"));
}

TEST(GrantedIdentity, AGrantWithoutBoundsIsPreferred) {
  const Identity all = Granted(kReaders, {"a", "all"});
  EXPECT_THAT(all.owners, IsEmpty());
  EXPECT_THAT(all.jobs, IsEmpty());
}

}  // namespace
}  // namespace perseus::server
