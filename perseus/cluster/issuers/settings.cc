#include "perseus/cluster/issuers/settings.h"

#include <algorithm>
#include <array>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/toml_file.h"
#include "perseus/cluster/issuers/provider.h"

namespace perseus::issuers {
namespace {

using toml_file::FileReader;
using toml_file::TableReader;

constexpr int kMostLeeway = 300;
constexpr int kDefaultLeeway = 10;

std::string TextOr(TableReader& reader, std::string_view key, std::string otherwise) {
  return reader.Has(key) ? reader.Text(key) : std::move(otherwise);
}

// What a grant may have besides its group or subject depends on its scope.
void CheckGrant(TableReader& reader, const Grant& grant) {
  constexpr std::array<std::string_view, 5> kScopes{"operator", "member", "read", "agent", "join"};
  if (reader.error()) return;
  if (std::ranges::find(kScopes, grant.scope) == kScopes.end()) {
    return reader.FailAt("scope", "scope is not operator, member, read, agent or join");
  }
  if (grant.group.empty() == grant.subject.empty()) {
    return reader.FailHere(
        "[[issuer.grant]] needs one of group, service_account and subject, and only one "
        "(write group = \"admins\")");
  }
  const bool is_node = grant.scope == "agent" || grant.scope == "join";
  if (is_node != !grant.nodes.empty()) {
    return reader.FailHere(is_node ? "a grant of scope agent or join needs nodes (write nodes = "
                                     "[\"{node}\"], or patterns such as \"gpu-*\")"
                                   : "nodes is for the scopes agent and join (remove it)");
  }
  if (grant.scope == "member" && grant.owner.empty()) {
    return reader.FailHere("a grant of scope member needs owner (write owner = \"{group}\")");
  }
  if (!grant.owner.empty() && grant.scope != "member" && grant.scope != "read") {
    return reader.FailAt("owner", "owner is for the scopes member and read (remove it)");
  }
  if (!grant.jobs.empty() && (grant.scope == "operator" || grant.scope == "member")) {
    return reader.FailAt("jobs", "jobs is for the scopes read, agent and join (remove it)");
  }
}

Grant ReadGrant(TableReader& reader) {
  reader.Require("scope", "scope = \"member\"");
  Grant grant{.group = reader.Text("group"),
              .subject = reader.Text("subject"),
              .scope = reader.Text("scope"),
              .owner = reader.Text("owner"),
              .nodes = reader.Texts("nodes"),
              .jobs = reader.Texts("jobs")};
  if (const std::string account = reader.Text("service_account"); !account.empty()) {
    const std::size_t slash = account.find('/');
    if (slash == std::string::npos || !grant.subject.empty()) {
      reader.FailAt("service_account",
                    "service_account is not NAMESPACE/NAME, or subject is there, too");
      return grant;
    }
    grant.subject =
        "system:serviceaccount:" + account.substr(0, slash) + ":" + account.substr(slash + 1);
  }
  CheckGrant(reader, grant);
  return grant;
}

LoginSettings ReadLogin(TableReader& reader) {
  reader.Require("client", "client = \"perseus\"");
  LoginSettings login{.client = reader.Text("client"),
                      .scopes = reader.Texts("scopes"),
                      .token = TextOr(reader, "token", "id_token"),
                      .resource = reader.Text("resource")};
  if (login.scopes.empty()) login.scopes = {"openid", "profile", "offline_access"};
  if (!reader.error() && login.token != "id_token" && login.token != "access_token") {
    reader.FailAt("token", "token is not \"id_token\" or \"access_token\"");
  }
  return login;
}

IssuerSettings ReadIssuer(TableReader& reader) {
  reader.Require("name", "name = \"corp\"");
  reader.Require("url", "url = \"https://login.example.com\"");
  reader.Require("audience", "audience = \"perseus\"");
  IssuerSettings issuer{.name = reader.Text("name"),
                        .url = reader.Text("url"),
                        .audience = reader.Text("audience"),
                        .authority = reader.Text("ca"),
                        .bearer_file = reader.Text("bearer_file"),
                        .keys_url = reader.Text("keys_url"),
                        .user_claim = TextOr(reader, "user_claim", "preferred_username"),
                        .groups_claim = TextOr(reader, "groups_claim", "groups"),
                        .node_claim = TextOr(reader, "node_claim", "kubernetes.io/node/name"),
                        .leeway_s = reader.CountFrom("leeway_s", 0, kMostLeeway, kDefaultLeeway)};
  if (reader.error()) return issuer;
  if (issuer.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") != std::string::npos) {
    reader.FailAt("name", "name is not a name (small letters, digits and '-')");
  }
  for (const char* key : {"url", "keys_url"}) {
    if (!reader.Has(key)) continue;
    if (const auto url = ParseProviderUrl(reader.Text(key)); !url) {
      reader.FailAt(key, url.error().message);
    }
  }
  return issuer;
}

bool IsKnown(const std::vector<IssuerSettings>& issuers, const IssuerSettings& issuer) {
  return std::ranges::any_of(issuers, [&](const IssuerSettings& other) {
    return other.name == issuer.name || other.url == issuer.url;
  });
}

std::vector<IssuerSettings> ReadIssuers(FileReader& reader, std::string_view file) {
  std::vector<IssuerSettings> issuers;
  reader.ReadTables("issuer", [&](const toml::table& table) {
    static constexpr std::array<std::string_view, 12> kKeys{
        "name",       "url",          "audience",   "ca",       "bearer_file", "keys_url",
        "user_claim", "groups_claim", "node_claim", "leeway_s", "login",       "grant"};
    TableReader values(table, file, "[[issuer]]", kKeys);
    IssuerSettings issuer = ReadIssuer(values);
    if (!reader.Keep(values)) return;
    FileReader inner(table, file);
    inner.ReadTable("login", [&](const toml::table& login) {
      static constexpr std::array<std::string_view, 4> kLoginKeys{"client", "scopes", "token",
                                                                  "resource"};
      TableReader read(login, file, "[issuer.login]", kLoginKeys);
      issuer.login = ReadLogin(read);
      inner.Keep(read);
    });
    inner.ReadTables("grant", [&](const toml::table& grant) {
      static constexpr std::array<std::string_view, 7> kGrantKeys{
          "group", "subject", "service_account", "scope", "owner", "nodes", "jobs"};
      TableReader read(grant, file, "[[issuer.grant]]", kGrantKeys);
      issuer.grants.push_back(ReadGrant(read));
      inner.Keep(read);
    });
    if (!inner.error() && issuer.grants.empty()) {
      values.FailHere("the issuer grants nothing (write [[issuer.grant]] below it)");
    }
    if (IsKnown(issuers, issuer)) values.FailHere("two issuers have the same name or url");
    reader.Keep(values);
    if (inner.error() && !reader.error()) reader.FailWith(*inner.error());
    issuers.push_back(std::move(issuer));
  });
  return issuers;
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

Result<Settings> ReadSettings(std::string_view text, std::string_view file) {
  PERSEUS_ASSIGN_OR_RETURN(const toml::table root, toml_file::Parse(text, file));
  FileReader reader(root, file);
  static constexpr std::array<std::string_view, 2> kTables{"issuer", "munge"};
  reader.Keep(TableReader(root, file, "the file", kTables));
  Settings settings;
  settings.issuers = ReadIssuers(reader, file);
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

Result<Settings> ReadSettingsFiles(const std::vector<std::string>& files) {
  Settings all;
  for (const std::string& file : files) {
    PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(file));
    PERSEUS_ASSIGN_OR_RETURN(Settings more, ReadSettings(text, file));
    for (IssuerSettings& issuer : more.issuers) {
      if (IsKnown(all.issuers, issuer)) {
        return Fail("{}: another file has an issuer with the name {} or its url", file,
                    issuer.name);
      }
      all.issuers.push_back(std::move(issuer));
    }
    if (more.munge && all.munge) return Fail("{}: another file has [munge], too", file);
    if (more.munge) all.munge = std::move(more.munge);
  }
  return all;
}

}  // namespace perseus::issuers
