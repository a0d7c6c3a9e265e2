#include "perseus/cli/flags/server_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "perseus/base/environment.h"
#include "perseus/base/excerpt.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cluster/node/own_token.h"

namespace perseus::cli {
namespace {

constexpr const char* kServer = "http://127.0.0.1:7410";

// The flag, or else the variable, or else the default.
std::string FirstOf(const std::string& flag, const char* variable, const std::string& otherwise) {
  return flag.empty() ? EnvironmentOr(variable, otherwise) : flag;
}

Result<nlohmann::ordered_json> Parsed(const Result<std::string>& text) {
  if (!text) return Fail(text);
  auto json = nlohmann::ordered_json::parse(*text, nullptr, false);
  if (json.is_discarded()) {
    return FailAs(ErrorKind::kSystem, "the server's answer is not JSON (is it a perseus server?)");
  }
  return json;
}

}  // namespace

void AddServerFlags(CLI::App& verb, ServerFlags& flags, const std::string& scope) {
  const std::string group = "Server";
  verb.add_option("--server", flags.server,
                  fmt::format("URL of the server, or comma-separated URLs of replicas (default: "
                              "PERSEUS_SERVER, or {})",
                              kServer))
      ->type_name("URL")
      ->group(group);
  CLI::Option* token =
      verb.add_option("--token-file", flags.token_file,
                      fmt::format("A token of scope {} (default: PERSEUS_TOKEN_FILE{})", scope,
                                  scope == "agent" ? ", or none" : ""));
  token->type_name("FILE")->group(group);
  // A node that joins writes this file itself.
  if (scope != "agent") token->check(InputFile());
  verb.add_option("--ca", flags.authority,
                  "Certificate authority to trust (PEM; default: those of the system)")
      ->type_name("FILE")
      ->check(InputFile())
      ->group(group);
  CLI::Option* certificate =
      verb.add_option("--cert", flags.certificate, "Client certificate (PEM)")
          ->type_name("FILE")
          ->check(InputFile())
          ->group(group);
  CLI::Option* key = verb.add_option("--key", flags.key, "Key of the client certificate (PEM)")
                         ->type_name("FILE")
                         ->check(InputFile())
                         ->group(group);
  certificate->needs(key);
  key->needs(certificate);
}

void AddReasonFlag(CLI::App& verb, ServerFlags& flags) {
  verb.add_option("--reason", flags.reason, "Why, in one line, for the audit trail")
      ->type_name("TEXT");
}

std::string TokenFileOf(const ServerFlags& flags) {
  return FirstOf(flags.token_file, "PERSEUS_TOKEN_FILE", "");
}

Result<http::ClientOptions> ClientOptionsOf(const ServerFlags& flags, TokenComes comes) {
  http::ClientOptions options;
  options.server = FirstOf(flags.server, "PERSEUS_SERVER", kServer);
  options.authority = flags.authority;
  options.certificate = flags.certificate;
  options.key = flags.key;
  const std::string file = TokenFileOf(flags);
  if (comes == TokenComes::kLater || file.empty()) return options;
  PERSEUS_ASSIGN_OR_RETURN(options.token, node::ReadSecretFile(file));
  return options;
}

Result<ServerClient> ServerClient::Connect(const ServerFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(auto options, ClientOptionsOf(flags));
  PERSEUS_ASSIGN_OR_RETURN(auto client, http::Client::Create(std::move(options)));
  http::Fields fields;
  if (!flags.reason.empty()) fields["perseus-reason"] = http::PercentEncoded(flags.reason);
  return ServerClient(std::move(client), std::move(fields));
}

Result<nlohmann::ordered_json> ServerClient::Get(const std::string& target) {
  return Parsed(GetText(target));
}

Result<std::string> ServerClient::GetText(const std::string& target) {
  return client_.Fetch({.target = target});
}

Result<nlohmann::ordered_json> ServerClient::Send(const std::string& method,
                                                  const std::string& target,
                                                  const std::string& body,
                                                  const std::string& content_type) {
  return Parsed(client_.Fetch({.method = method,
                               .target = target,
                               .body = body,
                               .content_type = content_type,
                               .fields = fields_}));
}

Result<ServerClient::Registered> ServerClient::Register(const std::string& body) {
  PERSEUS_ASSIGN_OR_RETURN(
      auto response,
      client_.SendOrFail(
          {.method = "POST", .target = "/v1/jobs", .body = body, .fields = fields_}));
  PERSEUS_ASSIGN_OR_RETURN(auto job, Parsed(std::move(response.body)));
  return Registered{.job = std::move(job), .is_new = response.status == 201};
}

Result<void> ReadingAnswers(const std::function<Result<void>()>& run) {
  try {
    return run();
  } catch (const nlohmann::json::exception& error) {
    std::string_view what = error.what();  // "[json.exception.out_of_range.403] key 'jobs' ..."
    what.remove_prefix(std::min(what.size(), what.find("] ") + 2));
    return FailAs(ErrorKind::kSystem,
                  "the server's answer is not what this command expects: {} (is it a perseus "
                  "server, and of this version?)",
                  Explained(what));
  }
}

}  // namespace perseus::cli
