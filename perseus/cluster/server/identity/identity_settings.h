// The file of `perseus serve --identities`: who identifies callers without a token of this server,
// and what these callers may do (docs/identity.md). Its format is TOML:
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

// The rights of people with this group or name. Exactly one of the two is set.
struct Grant {
  std::string group = {};                    // A pattern.
  std::string user = {};                     // A pattern.
  store::Scope scope = store::Scope::kRead;  // Operator, member or read.
  // The owner whose jobs a member may change, or read may see. "{group}" is the group, "{user}" the
  // user's name.
  std::string owner = {};
  std::vector<std::string> jobs = {};  // Patterns of jobs that read may see. Empty: all.
  bool operator==(const Grant&) const = default;
};

// A proxy that authenticates people, and names them in two fields of the header. At least one of
// socket and certificates is set.
struct ProxySettings {
  std::optional<http::UnixAddress> socket = {};  // Any client of it is the proxy.
  // Exact common names of client certificates. A client with one of them is the proxy.
  std::vector<std::string> certificates = {};
  std::string user_header;    // In lower case.
  std::string groups_header;  // The same.
  std::vector<Grant> grants = {};
  bool operator==(const ProxySettings&) const = default;
};

struct MungeSettings {
  std::string audience;                // The name of this server in credentials.
  std::vector<std::string> users;      // Names, or user ids.
  std::vector<std::string> nodes;      // Patterns.
  std::vector<std::string> jobs = {};  // Patterns. Empty: all.
  std::string socket = {};             // The socket of munged. Empty: the default.
  bool operator==(const MungeSettings&) const = default;
};

struct IdentitySettings {
  std::optional<ProxySettings> proxy;
  std::optional<MungeSettings> munge;
};

// Fails (kInput) with the file and the line.
Result<IdentitySettings> ReadIdentitySettings(std::string_view text, std::string_view file);
Result<IdentitySettings> ReadIdentityFile(const std::string& file);

}  // namespace perseus::server
