// The agent's socket, from both ends: a connection of datagrams (AF_UNIX, SOCK_SEQPACKET) that can
// carry descriptors. The kernel identifies the peer.
//
// Only the agent sends descriptors. Even the close of a descriptor can block forever (a file on a
// file system that does not answer, a connection that lingers). So the agent must never hold a
// descriptor of a client.
//
// Thread safety: several threads may call all functions, but only one at a time for each socket.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"

namespace perseus::protocol {

// The process at the other end, as of its connect() (SO_PEERCRED). The process cannot forge this.
struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

struct Datagram {
  std::string text;
  std::vector<FileDescriptor> descriptors;  // CLOEXEC.
};

// Listens on `path`. Its directory must exist. `mode` has the permissions of the socket file (who
// may connect), independent of the umask. It atomically replaces a socket on which no process
// listens any more. Fails (kSystem), with the path, if a process listens on this path or if the
// path is not a socket. Fails (kInput) for a path that is too long for the system. The socket is
// non-blocking. The file remains when the descriptor is closed.
Result<FileDescriptor> Listen(const std::filesystem::path& path, mode_t mode);

// Returns the next client, non-blocking, or an empty descriptor if none waits. Fails (kSystem) if
// this process has no descriptors left. The client still waits then, so do not try again at once.
Result<FileDescriptor> Accept(int listener);

// Connects. Fails (kSystem), with a remedy, if no process listens there, or if it does not accept
// the connection for some seconds. The socket is blocking.
Result<FileDescriptor> Connect(const std::filesystem::path& path);

Result<Peer> PeerOf(int socket);

// Sends one datagram. Fails (kSystem) if the peer is gone or, on a non-blocking socket, does not
// read. Fails (kInput) if the text is empty or longer than kLongestMessage, or if it has more
// descriptors than a channel. Never raises SIGPIPE. The caller keeps the descriptors.
Result<void> Send(int socket, std::string_view text, const std::vector<int>& descriptors = {});

// Whether the kernel lets the peer of this socket send no descriptors (SO_PASSRIGHTS, Linux 6.16),
// as Listen asks for. If not, even the close of the socket may wait for the peer.
bool RefusesDescriptors(int socket);

// What can be read. kNothing: nothing now (a non-blocking socket). kEnd: the peer is gone, or sent
// an empty datagram, which looks the same. kDescriptors: the next datagram has descriptors. It
// stays in the queue, because a read would close them here. A datagram over kLongestMessage is
// dropped, and is an error (kInput). The next one can be read.
enum class Received { kDatagram, kNothing, kEnd, kDescriptors };
struct Reception {
  Received state = Received::kNothing;
  Datagram datagram;
};
Result<Reception> Receive(int socket);

// Sends a request as a client and returns its reply, with at most the descriptors of a channel.
// Fails (kSystem) if no reply comes within `timeout`. Close the socket after a failure, because a
// late reply would be taken for the reply to the next request.
Result<Datagram> SendRequest(int socket, std::string_view request,
                             std::chrono::milliseconds timeout);

}  // namespace perseus::protocol
