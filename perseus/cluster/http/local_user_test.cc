// Tests the user of the other side of a connection.
#include "perseus/cluster/http/local_user.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "perseus/base/file_descriptor.h"

namespace perseus::http {
namespace {

constexpr std::string_view kTable =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode\n"
    "   0: 0100007F:1CF2 00000000:0000 0A 00000000:00000000 00:00000000 00000000   998        0 7\n"
    "   1: 0100007F:1CF2 0100007F:D431 01 00000000:00000000 00:00000000 00000000   998        0 8\n"
    "   2: 0100007F:D431 0100007F:1CF2 01 00000000:00000000 02:00000000 00000000  1000        0 9\n"
    "   3: 0100007F:D432 0100007F:1CF2 06 00000000:00000000 03:00000000 00000000     0        0 0\n"
    "   4: 0100007F:D433 0100007F:1CF2 01 00000000:00000000 02:00000000 00000000     0        0 0\n"
    "   5: 0100007F:D434 0100007F:1CF2 04 00000000:00000000 02:00000000 00000000  1000        0 "
    "9\n";

TEST(LocalUser, IsTheUserOfTheSocketAtTheOtherEnd) {
  const auto user = [](std::string_view end) { return UserInTable(kTable, end, "0100007F:1CF2"); };
  EXPECT_EQ(user("0100007F:D431"), 1000U);
  EXPECT_EQ(user("0100007F:D432"), std::nullopt) << "a closed socket is not root's";
  EXPECT_EQ(user("0100007F:D433"), std::nullopt) << "nor is one that is being closed";
  EXPECT_EQ(user("0100007F:D434"), std::nullopt) << "it has ended its part";
  EXPECT_EQ(user("0100007F:D435"), std::nullopt);
  EXPECT_EQ(UserInTable("", "0100007F:D431", "0100007F:1CF2"), std::nullopt);
}

// A connection over a loopback address, with both ends in this process.
struct LoopbackPair {
  explicit LoopbackPair(int family) {
    sockaddr_storage address{};
    address.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET) {
      reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
      reinterpret_cast<sockaddr_in6&>(address).sin6_addr = in6addr_loopback;
    }
    const FileDescriptor listener(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    auto* at = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener.get(), at, size) != 0 || ::listen(listener.get(), 1) != 0) return;
    ::getsockname(listener.get(), at, &size);
    client = FileDescriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(client.get(), at, size) != 0) return;
    server = FileDescriptor(::accept(listener.get(), nullptr, nullptr));
  }
  FileDescriptor client;
  FileDescriptor server;
};

TEST(LocalUser, IsFoundForARealConnection) {
  for (const int family : {AF_INET, AF_INET6}) {
    LoopbackPair pair(family);
    EXPECT_TRUE(pair.server || family == AF_INET6);
    if (!pair.server) continue;  // A machine without IPv6.
    EXPECT_EQ(UserOfOtherSide(pair.server.get()), ::geteuid());
    pair.client = FileDescriptor();
    EXPECT_EQ(UserOfOtherSide(pair.server.get()), std::nullopt);
  }
}

}  // namespace
}  // namespace perseus::http
