// The file that names the issuers that the server trusts, and what their tokens are good for
// (docs/identity.md). Its format is TOML:
//
//   [[issuer]]
//   name = "corp"
//   url = "https://login.example.com"
//   audience = "perseus"
//
//   [[issuer.grant]]
//   group = "team-*"
//   scope = "member"
//   owner = "{group}"
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"

namespace perseus::issuers {

// What tokens with this group or subject are good for. Exactly one of both is set.
struct Grant {
  std::string group = {};    // A pattern.
  std::string subject = {};  // A pattern for the claim sub.
  std::string scope = {};    // operator, member, read, agent or join.
  // Of member and read: whose jobs. "{group}" is the group, "{user}" the user's name.
  std::string owner = {};
  std::vector<std::string> nodes = {};  // Of agent and join: patterns. "{node}" is from the claim.
  std::vector<std::string> jobs = {};   // Of read, agent and join: patterns. Empty: all.
  bool operator==(const Grant&) const = default;
};

// What `perseus login` needs to know. It is public.
struct LoginSettings {
  std::string client;               // The client id.
  std::vector<std::string> scopes;  // Of OAuth.
  std::string token;                // What is sent to the server: "id_token" or "access_token".
  std::string resource = {};        // RFC 8707. May be empty.
  bool operator==(const LoginSettings&) const = default;
};

struct IssuerSettings {
  std::string name;  // Prefix of ids in the audit trail: "corp:248289761001".
  std::string url;   // The claim iss, exactly.
  std::string audience;
  std::string authority = {};    // PEM file. Empty: the authorities of the system.
  std::string bearer_file = {};  // A token that the issuer requires of those who read its keys.
  std::string keys_url = {};     // Empty: by discovery.
  std::string user_claim = {};
  std::string groups_claim = {};
  std::string node_claim = {};
  int leeway_s = 0;
  std::optional<LoginSettings> login = {};
  std::vector<Grant> grants = {};
  bool operator==(const IssuerSettings&) const = default;
};

struct MungeSettings {
  std::string audience;                // The name of this server in credentials.
  std::vector<std::string> users;      // Names, or user ids.
  std::vector<std::string> nodes;      // Patterns.
  std::vector<std::string> jobs = {};  // Patterns. Empty: all.
  std::string socket = {};             // Of munged. Empty: the default.
  bool operator==(const MungeSettings&) const = default;
};

struct Settings {
  std::vector<IssuerSettings> issuers;
  std::optional<MungeSettings> munge;
};

// Fails (kInput) with the file and the line.
Result<Settings> ReadSettings(std::string_view text, std::string_view file);
// The settings of all files together. Fails if two of them name the same issuer.
Result<Settings> ReadSettingsFiles(const std::vector<std::string>& files);

}  // namespace perseus::issuers
