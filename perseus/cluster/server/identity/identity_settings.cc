#include "perseus/cluster/server/identity/identity_settings.h"

#include <algorithm>
#include <array>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/toml_file.h"

namespace perseus::server {
namespace {

using store::Scope;
using toml_file::FileReader;
using toml_file::TableReader;

Scope ReadScope(TableReader& reader) {
  const auto scope = store::Parse<Scope>(reader.Text("scope"));
  if (scope == Scope::kOperator || scope == Scope::kMember || scope == Scope::kRead) return *scope;
  if (!reader.error()) reader.FailAt("scope", "scope is not operator, member or read");
  return Scope::kRead;
}

// Checks the other members of a grant, besides its group or user. The scope of the grant decides
// which members are allowed.
void CheckGrant(TableReader& reader, const Grant& grant) {
  if (reader.error()) return;
  if (grant.group.empty() == grant.user.empty()) {
    return reader.FailHere(
        "[[proxy.grant]] needs one of group and user, and only one (write group = \"admins\")");
  }
  if (grant.scope == Scope::kMember && grant.owner.empty()) {
    return reader.FailHere("a grant of scope member needs owner (write owner = \"{{group}}\")");
  }
  if (!grant.owner.empty() && grant.scope == Scope::kOperator) {
    return reader.FailAt("owner", "owner is for the scopes member and read (remove it)");
  }
  if (!grant.jobs.empty() && grant.scope != Scope::kRead) {
    return reader.FailAt("jobs", "jobs is for the scope read (remove it)");
  }
}

Grant ReadGrant(TableReader& reader) {
  reader.Require("scope", "scope = \"member\"");
  Grant grant{.group = reader.Text("group"),
              .user = reader.Text("user"),
              .scope = ReadScope(reader),
              .owner = reader.Text("owner"),
              .jobs = reader.Texts("jobs")};
  CheckGrant(reader, grant);
  return grant;
}

std::string ReadHeader(TableReader& reader, std::string_view key, std::string otherwise) {
  std::string name = reader.Has(key) ? reader.Text(key) : std::move(otherwise);
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  // A name must not have "_". Other programs may treat "_" like "-", and so confuse two fields.
  if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") != std::string::npos) {
    reader.FailAt(key, "{} is not the name of a header (letters, digits and '-')", key);
  }
  return name;
}

ProxySettings ReadProxy(TableReader& reader) {
  ProxySettings proxy{.certificates = reader.Texts("certificates"),
                      .user_header = ReadHeader(reader, "user_header", "x-forwarded-user"),
                      .groups_header = ReadHeader(reader, "groups_header", "x-forwarded-groups")};
  if (reader.Has("socket")) {
    proxy.socket =
        http::UnixAddress{.path = reader.Text("socket"), .group = reader.Text("socket_group")};
  } else if (reader.Has("socket_group")) {
    reader.FailAt("socket_group", "socket_group needs socket (write socket, too)");
  } else if (proxy.certificates.empty()) {
    reader.FailHere(
        "[proxy] does not say who the proxy is (write socket = \"/run/perseus-server/proxy.sock\", "
        "or certificates = [\"oauth2-proxy\"])");
  }
  for (const std::string& name : proxy.certificates) {
    if (name.find('*') == std::string::npos) continue;
    reader.FailAt("certificates", "certificates has a pattern (write each common name in full)");
  }
  if (!reader.error() && proxy.user_header == proxy.groups_header) {
    reader.FailHere("user_header and groups_header are the same (write two names)");
  }
  return proxy;
}

ProxySettings ReadProxyTable(FileReader& reader, const toml::table& table, std::string_view file) {
  static constexpr std::array<std::string_view, 6> kKeys{
      "socket", "socket_group", "certificates", "user_header", "groups_header", "grant"};
  TableReader values(table, file, "[proxy]", kKeys);
  ProxySettings proxy = ReadProxy(values);
  FileReader inner(table, file);
  inner.ReadTables("grant", [&](const toml::table& grant) {
    static constexpr std::array<std::string_view, 5> kGrantKeys{"group", "user", "scope", "owner",
                                                                "jobs"};
    TableReader read(grant, file, "[[proxy.grant]]", kGrantKeys);
    proxy.grants.push_back(ReadGrant(read));
    inner.Keep(read);
  });
  if (proxy.grants.empty() && !inner.error()) {
    values.FailHere("[proxy] grants nothing (write [[proxy.grant]] below it)");
  }
  if (reader.Keep(values) && inner.error()) reader.FailWith(*inner.error());
  return proxy;
}

MungeSettings ReadMunge(TableReader& reader) {
  reader.Require("audience", "audience = \"perseus-prod\"");
  reader.Require("users", "users = [\"root\"]");
  reader.Require("nodes", "nodes = [\"gpu-*\"]");
  return {.audience = reader.Text("audience"),
          .users = reader.Texts("users"),
          .nodes = reader.Texts("nodes"),
          .jobs = reader.Texts("jobs"),
          .socket = reader.Text("socket")};
}

}  // namespace

Result<IdentitySettings> ReadIdentitySettings(std::string_view text, std::string_view file) {
  PERSEUS_ASSIGN_OR_RETURN(const toml::table root, toml_file::Parse(text, file));
  FileReader reader(root, file);
  static constexpr std::array<std::string_view, 3> kTables{"proxy", "munge", "issuer"};
  TableReader tables(root, file, "the file", kTables);
  if (tables.Has("issuer")) {
    tables.FailAt("issuer",
                  "the server no longer accepts the tokens of issuers (for people, let a proxy "
                  "such as oauth2-proxy log them in, and write [proxy] in place of [[issuer]]; for "
                  "pods of Kubernetes, use a join token; see docs/identity.md)");
  }
  reader.Keep(tables);
  IdentitySettings settings;
  reader.ReadTable("proxy", [&](const toml::table& table) {
    settings.proxy = ReadProxyTable(reader, table, file);
  });
  reader.ReadTable("munge", [&](const toml::table& table) {
    static constexpr std::array<std::string_view, 5> kKeys{"audience", "users", "nodes", "jobs",
                                                           "socket"};
    TableReader values(table, file, "[munge]", kKeys);
    settings.munge = ReadMunge(values);
    reader.Keep(values);
  });
  if (reader.error()) return tl::unexpected(*reader.error());
  return settings;
}

Result<IdentitySettings> ReadIdentityFile(const std::string& file) {
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(file));
  return ReadIdentitySettings(text, file);
}

}  // namespace perseus::server
