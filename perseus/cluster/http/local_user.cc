#include "perseus/cluster/http/local_user.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "perseus/base/number.h"

namespace perseus::http {
namespace {

constexpr std::string_view kEstablished = "01";

// One end of a connection, as the kernel writes it: each 32 bits of the address as a number in the
// byte order of the machine, and the port.
std::string EndText(const sockaddr_storage& address) {
  std::string text;
  const auto add = [&text](const auto& bytes) {
    for (std::size_t at = 0; at < sizeof(bytes); at += sizeof(std::uint32_t)) {
      std::uint32_t word = 0;
      std::memcpy(&word, reinterpret_cast<const char*>(&bytes) + at, sizeof(word));
      text += fmt::format("{:08X}", word);
    }
  };
  if (address.ss_family == AF_INET) {
    sockaddr_in ipv4{};
    std::memcpy(&ipv4, &address, sizeof(ipv4));
    add(ipv4.sin_addr);
    return text + fmt::format(":{:04X}", ntohs(ipv4.sin_port));
  }
  sockaddr_in6 ipv6{};
  std::memcpy(&ipv6, &address, sizeof(ipv6));
  add(ipv6.sin6_addr);
  return text + fmt::format(":{:04X}", ntohs(ipv6.sin6_port));
}

// In a user namespace, all users that the namespace does not know look like this one.
uid_t UnknownUser() {
  std::ifstream file("/proc/sys/kernel/overflowuid");
  uid_t user = 0;
  constexpr uid_t kDefault = 65534;  // The server's unit does not see the file.
  return file >> user ? user : kDefault;
}

}  // namespace

std::optional<uid_t> UserInTable(std::string_view table, std::string_view own_end,
                                 std::string_view other_end) {
  const std::string ends = fmt::format(" {} {} ", own_end, other_end);
  const std::size_t found = table.find(ends);
  if (found == std::string_view::npos) return std::nullopt;
  const std::string_view rest = table.substr(found + ends.size());
  std::istringstream row{std::string(rest.substr(0, rest.find('\n')))};
  // State, queues, timer, retransmits, user, timeout, inode.
  const std::array<std::string, 7> columns = [&row] {
    std::array<std::string, 7> read;
    for (std::string& column : read) row >> column;
    return read;
  }();
  // A socket without a file (inode 0) no longer belongs to a program.
  if (columns[0] != kEstablished || columns[6].empty() || columns[6] == "0") return std::nullopt;
  return ParseNumber<uid_t>(columns[4]);
}

std::optional<uid_t> UserOfOtherSide(int socket) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t size = sizeof(here);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&here), &size) != 0) return std::nullopt;
  size = sizeof(there);
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&there), &size) != 0) return std::nullopt;
  if (here.ss_family != AF_INET && here.ss_family != AF_INET6) return std::nullopt;
  // The server's unit sees only the files of processes in /proc, so not /proc/net.
  std::ifstream file(here.ss_family == AF_INET ? "/proc/self/net/tcp" : "/proc/self/net/tcp6");
  const std::string table{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::optional<uid_t> user = UserInTable(table, EndText(there), EndText(here));
  return user == UnknownUser() ? std::nullopt : user;
}

}  // namespace perseus::http
