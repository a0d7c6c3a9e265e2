// Finds the user of a program on this machine that is connected over a loopback address.
//
// A Unix socket reports the user of the other side (SO_PEERCRED), but a TCP socket does not. The
// kernel's table of TCP sockets has the user of each socket: the user of the program that opened
// it. The table has one line per socket of the network namespace, so a look takes milliseconds if
// there are thousands of sockets.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

namespace perseus::http {

// Returns the user of the other side of a connected TCP socket. Returns nullopt if the other side
// has closed its socket, if it is on another machine, or if its user is unknown in the user
// namespace of this process.
std::optional<uid_t> UserOfOtherSide(int socket);

// Returns the user of the connected socket with these ends, from the text of /proc/net/tcp or tcp6.
// The ends have the format of the table: "0100007F:1CF2". Ignores sockets that are closed: for
// these, the table has user 0.
std::optional<uid_t> UserInTable(std::string_view table, std::string_view own_end,
                                 std::string_view other_end);

}  // namespace perseus::http
