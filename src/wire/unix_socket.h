// The agent's socket, from both ends: datagrams with borders over a connection (AF_UNIX,
// SOCK_SEQPACKET), with descriptors passed along and the kernel's word on who the peer is.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/wire/file_descriptor.h"

namespace perseus::wire {

// Who is at the other end, by SO_PEERCRED: as of its connect(), and nothing it can forge.
struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

struct Datagram {
  std::string text;
  std::vector<FileDescriptor> descriptors;
};

// Listens on `path`, whose directory must exist; `mode` are the socket file's permissions (who may
// connect). Replaces a socket that nobody listens on any more; fails (kSystem) if somebody does,
// and names the path. Non-blocking.
Result<FileDescriptor> Listen(const std::filesystem::path& path, mode_t mode);

// Connects; fails with kSystem and a remedy if nobody listens there. Blocking.
Result<FileDescriptor> Connect(const std::filesystem::path& path);

Result<Peer> PeerOf(int socket);

// Sends one datagram. Fails (kSystem) if the peer is gone or, on a non-blocking socket, does not
// read. Never raises SIGPIPE.
Result<void> Send(int socket, std::string_view text, const std::vector<int>& descriptors = {});

// What there is to read. kNothing: nothing now (a non-blocking socket). kEnd: the peer is gone.
// Datagrams over kLongestMessage, and more descriptors than a channel has, are an error (kInput);
// what came of them is thrown away and the descriptors closed. Received descriptors are CLOEXEC.
enum class Received { kDatagram, kNothing, kEnd };
struct Reception {
  Received state = Received::kNothing;
  Datagram datagram;
};
Result<Reception> Receive(int socket);

// A request and its reply on a blocking socket; kSystem if none comes in `timeout`.
Result<Datagram> Ask(int socket, std::string_view request, std::chrono::milliseconds timeout);

}  // namespace perseus::wire
