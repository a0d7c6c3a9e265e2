// The agent's socket, for both ends: a connection of datagrams (AF_UNIX, SOCK_SEQPACKET) that can
// carry descriptors. The kernel identifies the peer.
//
// Only the agent sends descriptors. Even closing a descriptor can block forever: a file on a file
// system that does not answer, or a connection that lingers. So the agent must never hold a
// descriptor of a client.
//
// Thread safety: several threads may call all functions, but only one call at a time for each
// socket.
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

// The process at the other end at the time of its connect() (SO_PEERCRED). The process cannot forge
// these values.
struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

struct Datagram {
  std::string text;
  std::vector<FileDescriptor> descriptors;  // With CLOEXEC.
};

// Listens on `path`. The directory of `path` must exist. `mode` has the permissions of the socket
// file (who may connect), independent of the umask. If `path` is a socket on which no process
// listens any more, replaces it atomically. Fails (kSystem), with the path, if a process listens on
// `path`, or if `path` is not a socket. Fails (kInput) if `path` is too long for the system. The
// socket is non-blocking. The file remains when the descriptor is closed.
Result<FileDescriptor> Listen(const std::filesystem::path& path, mode_t mode);

// Returns the connection of the next client, non-blocking. Returns an empty descriptor if no client
// waits. Fails (kSystem) if this process has no descriptors left. After this failure, the client
// still waits, so do not try again at once.
Result<FileDescriptor> Accept(int listener);

// Connects to the agent. Fails (kSystem), with a remedy, if no process listens on `path`, or if the
// process does not accept the connection for some seconds. The socket is blocking.
Result<FileDescriptor> Connect(const std::filesystem::path& path);

Result<Peer> PeerOf(int socket);

// Sends one datagram. Fails (kSystem) if the peer is gone. On a non-blocking socket, also fails
// (kSystem) if the peer does not read. Fails (kInput) if the text is empty or longer than
// kLongestMessage, or if there are more descriptors than a channel has. Never raises SIGPIPE. The
// caller keeps the descriptors.
Result<void> Send(int socket, std::string_view text, const std::vector<int>& descriptors = {});

// Whether the kernel refuses descriptors from the peer of this socket (SO_PASSRIGHTS, Linux 6.16),
// as Listen requests. If the kernel does not refuse them, even closing the socket may wait for the
// peer.
bool RefusesDescriptors(int socket);

// What can be read.
//  - kNothing: nothing at the moment (a non-blocking socket).
//  - kEnd: the peer is gone, or sent an empty datagram, which looks the same.
//  - kDescriptors: the next datagram has descriptors. It stays in the queue, because reading it
//    would create its descriptors in this process, and this process would have to close them.
// A datagram over kLongestMessage is dropped, and is an error (kInput). The datagram after it can
// be read.
enum class Received { kDatagram, kNothing, kEnd, kDescriptors };
struct Reception {
  Received state = Received::kNothing;
  Datagram datagram;
};
Result<Reception> Receive(int socket);

// Sends a request as a client, and returns its reply. The reply has at most the descriptors of a
// channel. Fails (kSystem) if no reply comes within `timeout`. Close the socket after a failure.
// Otherwise the client would take a late reply for the reply to the next request.
Result<Datagram> SendRequest(int socket, std::string_view request,
                             std::chrono::milliseconds timeout);

}  // namespace perseus::protocol
