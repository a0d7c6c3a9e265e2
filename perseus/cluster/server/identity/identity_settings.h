// The file of `perseus serve --identities`: which services identify callers without a token of this
// server, and what these callers may do (docs/identity.md). The format of the file is TOML:
//
//   [proxy]
//   socket = "/run/perseus-server/proxy.sock"
//
//   [[proxy.grant]]
//   group = "team-*"
//   scope = "member"
//   owner = "{group}"
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/http/unix_listener.h"
#include "perseus/cluster/store/states.h"

namespace perseus::server {

// The rights of the people in a group, or of one user. Exactly one of `group` and `user` is set.
struct Grant {
  std::string group = {};                    // A pattern.
  std::string user = {};                     // A pattern.
  store::Scope scope = store::Scope::kRead;  // The scope operator, member or read.
  // The owner of the jobs that the scope member may change, or that the scope read may see.
  // "{group}" stands for the name of the group, and "{user}" for the name of the user.
  std::string owner = {};
  std::vector<std::string> jobs = {};  // Patterns of jobs that the scope read may see. Empty: all.
  bool operator==(const Grant&) const = default;
};

// A proxy that authenticates people. Two fields of the request header contain the user and the
// groups. At least one of `socket` and `certificates` is set.
struct ProxySettings {
  std::optional<http::UnixAddress> socket = {};  // Every client of this socket counts as the proxy.
  // Exact common names of client certificates. A client with one of these names counts as the
  // proxy.
  std::vector<std::string> certificates = {};
  std::string user_header;    // The name of the field with the user, in lower case.
  std::string groups_header;  // The name of the field with the groups, in lower case.
  std::vector<Grant> grants = {};
  bool operator==(const ProxySettings&) const = default;
};

struct MungeSettings {
  std::string audience;                // The name of this server in credentials.
  std::vector<std::string> users;      // Names or ids of the users whose credentials are valid.
  std::vector<std::string> nodes;      // Patterns of node names.
  std::vector<std::string> jobs = {};  // Patterns of job keys. Empty: all.
  std::string socket = {};             // The socket of munged. Empty: the default.
  bool operator==(const MungeSettings&) const = default;
};

struct IdentitySettings {
  std::optional<ProxySettings> proxy;
  std::optional<MungeSettings> munge;
};

// Reads the settings from `text`. Fails (kInput) with the file and the line of the error.
Result<IdentitySettings> ReadIdentitySettings(std::string_view text, std::string_view file);
Result<IdentitySettings> ReadIdentityFile(const std::string& file);

}  // namespace perseus::server
