// The agent's socket, from both ends: datagrams with borders over a connection (AF_UNIX,
// SOCK_SEQPACKET), with descriptors passed along and the kernel's word on who the peer is.
//
// Descriptors go from the agent to the client only. Merely to close one can take forever (a file
// whose file system is a process that does not answer, a connection that lingers), so the agent
// must not be made to hold one of a client's.
//
// Thread safety: all functions may be called from several threads; one request at a time a socket.
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

// Who is at the other end, by SO_PEERCRED: as of its connect(), and nothing it can forge.
struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

struct Datagram {
  std::string text;
  std::vector<FileDescriptor> descriptors;  // CLOEXEC.
};

// Listens on `path`, whose directory must exist; `mode` are the socket file's permissions (who may
// connect), whatever the umask. Replaces a socket that nobody listens on any more, in one step;
// fails (kSystem) if somebody does, or if something else is there, and names the path. A path that
// is too long for the system is kInput. Non-blocking. The file stays when the descriptor is closed.
Result<FileDescriptor> Listen(const std::filesystem::path& path, mode_t mode);

// The next client, non-blocking; an empty descriptor if none waits. Fails (kSystem) where this
// process has no descriptors left: the client still waits, so do not try again at once.
Result<FileDescriptor> Accept(int listener);

// Connects; fails with kSystem and a remedy if nobody listens there, or somebody who takes no
// connection for some seconds. Blocking.
Result<FileDescriptor> Connect(const std::filesystem::path& path);

Result<Peer> PeerOf(int socket);

// Sends one datagram. Fails (kSystem) if the peer is gone or, on a non-blocking socket, does not
// read; with kInput if the text is empty or longer than kLongestMessage, or there are more
// descriptors than a channel has. Never raises SIGPIPE. The descriptors stay the caller's.
Result<void> Send(int socket, std::string_view text, const std::vector<int>& descriptors = {});

// Whether the kernel lets the peer of this socket send no descriptors (SO_PASSRIGHTS, Linux 6.16),
// as Listen asks for. If not, even the close of the socket may wait for the peer.
bool RefusesDescriptors(int socket);

// What there is to read. kNothing: nothing now (a non-blocking socket). kEnd: the peer is gone, or
// sent an empty datagram, which looks the same. kDescriptors: the next datagram has descriptors. It
// stays in the queue, since to take it would close them here. A datagram over kLongestMessage is an
// error (kInput) and thrown away; the next one can be read.
enum class Received { kDatagram, kNothing, kEnd, kDescriptors };
struct Reception {
  Received state = Received::kNothing;
  Datagram datagram;
};
Result<Reception> Receive(int socket);

// The client's side: a request and its reply, with at most the descriptors of a channel; kSystem if
// none comes in `timeout`. After a failure close the socket: a late reply would be taken for that
// of the next request.
Result<Datagram> SendRequest(int socket, std::string_view request,
                             std::chrono::milliseconds timeout);

}  // namespace perseus::protocol
