// `perseus token` manages the access tokens of a server.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "perseus/cli/flag_checks.h"
#include "perseus/cli/server_flags.h"
#include "perseus/cli/standard_output.h"
#include "perseus/cli/table.h"
#include "perseus/cli/verbs.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kTokenAbout =
    "Manage the tokens of a perseus server. While no tokens exist, everybody who can reach the\n"
    "server is an operator: create a token of scope operator first, and keep it. A token is\n"
    "printed only once. The server stores only its hash.";
constexpr const char* kTokenExamples =
    "Examples:\n"
    "  perseus token create --scope operator --name ann > operator.token\n"
    "  perseus token create --scope job --job gpt3-run7 --expires-in-days 30 \\\n"
    "      --token-file operator.token > job.token\n"
    "  perseus token revoke t-1f2e3d4c --token-file operator.token";

struct TokenFlags {
  ServerFlags server;
  std::string scope;
  std::string job;
  std::string name;
  std::optional<double> expires_in_days;
  std::string id;
  bool as_json = false;
};

Result<void> Create(const TokenFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(auto server, ServerClient::Connect(flags.server));
  ordered_json body{{"scope", flags.scope}, {"name", flags.name}};
  if (!flags.job.empty()) body["job"] = flags.job;
  if (flags.expires_in_days) body["expires_in_days"] = *flags.expires_in_days;
  PERSEUS_ASSIGN_OR_RETURN(const auto token, server.Send("POST", "/v1/tokens", body.dump()));
  return Print(flags.as_json ? token.dump(2) + "\n" : token.at("token").get<std::string>() + "\n");
}

Result<void> List(const TokenFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(auto server, ServerClient::Connect(flags.server));
  PERSEUS_ASSIGN_OR_RETURN(const auto tokens, server.Get("/v1/tokens"));
  if (flags.as_json) return Print(tokens.dump(2) + "\n");
  Table table({"id", "scope", "job", "name", "created", "expires"});
  for (const ordered_json& token : tokens.at("tokens")) {
    table.AddRow({token.at("id"), token.at("scope"), token.value("job", ""), token.at("name"),
                  token.at("created"), token.value("expires", "never")});
  }
  return Print(table.Format());
}

Result<void> Revoke(const TokenFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(auto server, ServerClient::Connect(flags.server));
  PERSEUS_RETURN_IF_ERROR(
      server.Send("DELETE", "/v1/tokens/" + http::PercentEncoded(flags.id), ""));
  return Print(fmt::format("token {} is revoked\n", flags.id));
}

}  // namespace

Verb AddTokenVerb(CLI::App& program) {
  auto flags = std::make_shared<TokenFlags>();
  CLI::App* verb = program.add_subcommand("token", kTokenAbout);
  verb->footer(kTokenExamples);
  verb->require_subcommand(1);
  CLI::App* create = verb->add_subcommand("create", "Create a token and print it");
  create->add_option("--scope", flags->scope, "operator, agent, job or read")
      ->required()
      ->check(CLI::IsMember({"operator", "agent", "job", "read"}))
      ->type_name("SCOPE");
  create->add_option("--job", flags->job, "For scope job: the key of the job")->type_name("KEY");
  create->add_option("--name", flags->name, "Owner or purpose of the token")->type_name("NAME");
  create
      ->add_option("--expires-in-days", flags->expires_in_days,
                   "Days until it expires (default: never)")
      ->check(NumberIn({0, 36'500}, "in days"))
      ->type_name("DAYS");
  CLI::App* list = verb->add_subcommand("list", "List the tokens, without their secrets");
  CLI::App* revoke = verb->add_subcommand("revoke", "Revoke a token");
  revoke->add_option("id", flags->id, "Id of the token, as listed")->required()->type_name("ID");
  for (CLI::App* sub : {create, list, revoke}) {
    AddServerFlags(*sub, flags->server, "operator");
    if (sub != revoke) sub->add_flag("--json", flags->as_json, "Print JSON, for scripts");
  }
  return {verb, [=] {
            if (create->parsed()) return Create(*flags);
            return list->parsed() ? List(*flags) : Revoke(*flags);
          }};
}

}  // namespace perseus::cli
