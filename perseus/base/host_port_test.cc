#include "perseus/base/host_port.h"

#include <gmock/gmock.h>

#include "tests/support/results.h"

namespace perseus {
namespace {

TEST(HostPort, HasAHostAndAPort) {
  EXPECT_EQ(ParseHostPort("127.0.0.1:80")->host, "127.0.0.1");
  EXPECT_EQ(ParseHostPort("127.0.0.1:80")->port, 80);
  EXPECT_EQ(ParseHostPort("[::1]:80")->host, "::1");
  for (const char* bad : {"", ":", ":80", "a", "a:", "a:b", "a:65536", "a:-1", "::1:80", "a/b:80",
                          "a b:80", "u@a:80", "[::1:80"}) {
    EXPECT_THAT(ParseHostPort(bad), FailsWith(testing::HasSubstr("127.0.0.1:7410"))) << bad;
  }
}

TEST(HostPort, LoopbackIsThisMachineOnly) {
  for (const char* host : {"localhost", "::1", "127.0.0.1", "127.1.2.3"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host :
       {"", "127", "127.example.org", "0.0.0.0", "::", "localhost.example.org"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

}  // namespace
}  // namespace perseus
