// Listens on a Unix socket (a stream). Only its owner and one group can connect to it.
#pragma once

#include <string>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"

namespace perseus::http {

struct UnixAddress {
  std::string path;        // An absolute path.
  std::string group = {};  // The name or id of a group. Its members may connect. Empty: no group.
  bool operator==(const UnixAddress&) const = default;
};

// Returns a non-blocking socket. Its file has mode 0600, or 0660 with a group. Makes the directory
// if it is missing, and replaces a socket on which no process listens. The file remains when the
// descriptor is closed.
//
// Fails (kInput) for a wrong path or group. Fails (kSystem) if another process listens there, or if
// users other than root and the user of this process may write to the directory. Such a user could
// put another socket there, and would receive what the clients send.
Result<FileDescriptor> ListenUnix(const UnixAddress& at);

}  // namespace perseus::http
