// `perseus token` manages the access tokens of a server.
#include <fmt/core.h>

#include <memory>
#include <optional>
#include <utility>

#include "perseus/base/json_text.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/flags/server_flags.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/verbs.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kTokenAbout =
    "Manage the tokens of a perseus server. While no tokens exist, the user who runs the server\n"
    "and root are operators: create a token of scope operator first, and keep it. A token is\n"
    "printed only once. The server stores only its hash.";
constexpr const char* kTokenExamples =
    "  perseus token create --scope operator --name ann > operator.token\n"
    "  perseus token create --scope job --job gpt3-run7 --expires-in-days 30 \\\n"
    "      --token-file operator.token > job.token\n"
    "  perseus token create --scope agent --node gpu-17 \\\n"
    "      --token-file operator.token > node.token\n"
    "  perseus token create --scope join --node 'gpu-*' --expires-in-days 0.05 \\\n"
    "      --token-file operator.token > join.token\n"
    "  perseus token revoke t-1f2e3d4c --token-file operator.token";

struct TokenFlags {
  ServerFlags server;
  std::string scope;
  std::vector<std::string> jobs;
  std::vector<std::string> nodes;
  std::string owner;
  std::string certificate;
  std::string name;
  std::optional<double> expires_in_days;
  std::string id;
  bool as_json = false;
};

// Returns a text such as "node gpu-*, job run7".
std::string BoundsText(const ordered_json& token) {
  std::string text;
  const auto add = [&text](std::string_view what, const ordered_json& value) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {}", what, value.get<std::string>());
  };
  for (const auto& [key, what] :
       {std::pair{"job", "job"}, {"owner", "owner"}, {"certificate", "certificate"}}) {
    if (token.contains(key)) add(what, token[key]);
  }
  for (const auto& [key, what] : {std::pair{"nodes", "node"}, {"jobs", "job"}}) {
    if (!token.contains(key)) continue;
    for (const ordered_json& pattern : token[key]) add(what, pattern);
  }
  return text;
}

Result<void> Create(const Streams& streams, ServerClient& server, const TokenFlags& flags) {
  if (flags.scope == "job" && flags.jobs.size() != 1) {
    return Fail("a token of scope job is for one job (give --job once)");
  }
  const bool is_of_nodes =
      flags.scope == "join" || (flags.scope == "agent" && flags.certificate.empty());
  if (is_of_nodes && flags.nodes.empty()) {
    return Fail(
        "a token of scope {} is for nodes (add --node 'gpu-*', or --node '*' for every node)",
        flags.scope);
  }
  ordered_json body{{"scope", flags.scope}, {"name", flags.name}};
  if (flags.scope == "job") {
    body["job"] = flags.jobs.front();
  } else if (!flags.jobs.empty()) {
    body["jobs"] = flags.jobs;
  }
  if (!flags.nodes.empty()) body["nodes"] = flags.nodes;
  if (!flags.owner.empty()) body["owner"] = flags.owner;
  if (!flags.certificate.empty()) body["certificate"] = flags.certificate;
  if (flags.expires_in_days) body["expires_in_days"] = *flags.expires_in_days;
  PERSEUS_ASSIGN_OR_RETURN(const auto token, server.Send("POST", "/v1/tokens", JsonText(body)));
  if (flags.as_json) return streams.Print(JsonText(token, 2) + "\n");
  // A token with a client certificate has no secret.
  const char* shown = token.contains("token") ? "token" : "id";
  return streams.Print(token.at(shown).get<std::string>() + "\n");
}

Result<void> List(const Streams& streams, ServerClient& server, const TokenFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto tokens, server.Get("/v1/tokens"));
  if (flags.as_json) return streams.Print(JsonText(tokens, 2) + "\n");
  Table table({"id", "scope", "good for", "name", "created", "expires"});
  for (const ordered_json& token : tokens.at("tokens")) {
    table.AddRow({token.at("id"), token.at("scope"), BoundsText(token), token.at("name"),
                  token.at("created"), token.value("expires", "never")});
  }
  return streams.Print(table.Format());
}

Result<void> Revoke(const Streams& streams, ServerClient& server, const TokenFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(
      const auto revoked,
      server.Send("DELETE", "/v1/tokens/" + http::PercentEncoded(flags.id), ""));
  if (flags.as_json) return streams.Print(JsonText(revoked, 2) + "\n");
  return streams.Print(fmt::format("token {} is revoked\n", flags.id));
}

}  // namespace

Verb AddTokenVerb(CLI::App& program) {
  auto flags = std::make_shared<TokenFlags>();
  CLI::App* verb = AddVerb(program, "token", kTokenAbout, kTokenExamples).verb;
  verb->require_subcommand(1);
  CLI::App* create = verb->add_subcommand("create", "Create a token and print it");
  const FlagAdder add(*create);
  add("--scope", flags->scope, "SCOPE", "operator, member, agent, job, read or join",
      OneOf({"operator", "member", "agent", "job", "read", "join"}))
      ->required();
  add("--node", flags->nodes, "NAME",
      "For scopes agent and join: a node that it is good for, such as 'gpu-*', or '*' for every "
      "node; repeatable");
  add("--job", flags->jobs, "KEY",
      "For scope job: the key of the job. For agent, join and read: a job that it is good for, "
      "such as 'team-a-*' (default: all); repeatable");
  add("--owner", flags->owner, "OWNER",
      "For scopes member, job and read: the team or person whose jobs it is good for");
  add("--certificate", flags->certificate, "NAME",
      "Client certificates with this common name, such as 'gpu-*', take the place of the secret");
  add("--name", flags->name, "NAME", "Name in lists, logs and the audit trail");
  add("--expires-in-days", flags->expires_in_days, "DAYS", "Days until it expires (default: never)",
      NumberIn({0, 36'500, "in days"}));
  CLI::App* list = verb->add_subcommand("list", "List the tokens, without their secrets");
  CLI::App* revoke = verb->add_subcommand("revoke", "Revoke a token");
  FlagAdder{*revoke}("id", flags->id, "ID", "Id of the token, as listed")->required();
  for (CLI::App* sub : {create, list, revoke}) {
    AddServerFlags(*sub, flags->server, "operator");
    sub->add_flag("--json", flags->as_json, "Print JSON, for scripts");
    if (sub != list) AddReasonFlag(*sub, flags->server);
  }
  return {verb, [=](const Streams& streams) {
            return WithServer(flags->server, [&](ServerClient& server) {
              if (create->parsed()) return Create(streams, server, *flags);
              return list->parsed() ? List(streams, server, *flags)
                                    : Revoke(streams, server, *flags);
            });
          }};
}

}  // namespace perseus::cli
