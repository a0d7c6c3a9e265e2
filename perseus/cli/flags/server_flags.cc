#include "perseus/cli/flags/server_flags.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "perseus/base/environment.h"
#include "perseus/base/excerpt.h"
#include "perseus/base/json_text.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cluster/node/own_token.h"

namespace perseus::cli {
namespace {

constexpr const char* kServer = "http://127.0.0.1:7410";

Result<nlohmann::ordered_json> Parsed(const Result<std::string>& text) {
  if (!text) return Fail(text);
  auto json = ParseOrderedJson(*text);
  if (json.is_discarded()) {
    return FailAs(ErrorKind::kSystem, "the server's answer is not JSON (is it a perseus server?)");
  }
  return json;
}

}  // namespace

void AddServerFlags(CLI::App& verb, ServerFlags& flags, const std::string& scope) {
  const FlagAdder add(verb, "Server");
  add("--server", flags.server, "URL",
      fmt::format(
          "URL of the server, or comma-separated URLs of replicas (default: PERSEUS_SERVER, or {})",
          kServer));
  const bool is_of_node = scope == "agent";  // A node that joins writes this file itself.
  add("--token-file", flags.token_file, "FILE",
      fmt::format("A token of scope {} (default: PERSEUS_TOKEN_FILE{})", scope,
                  is_of_node ? ", or none" : ""),
      is_of_node ? CLI::Validator() : InputFile());
  add("--ca", flags.authority, "FILE",
      "Certificate authority to trust (PEM; default: those of the system)", InputFile());
  CLI::Option* certificate =
      add("--cert", flags.certificate, "FILE", "Client certificate (PEM)", InputFile());
  CLI::Option* key =
      add("--key", flags.key, "FILE", "Key of the client certificate (PEM)", InputFile());
  certificate->needs(key);
  key->needs(certificate);
}

void AddReasonFlag(CLI::App& verb, ServerFlags& flags) {
  FlagAdder{verb}("--reason", flags.reason, "TEXT", "Why, in one line, for the audit trail");
}

std::string TokenFileOf(const ServerFlags& flags) {
  return flags.token_file.empty() ? EnvironmentOr("PERSEUS_TOKEN_FILE") : flags.token_file;
}

Result<http::ClientOptions> ClientOptionsOf(const ServerFlags& flags, TokenComes comes) {
  http::ClientOptions options;
  options.server = flags.server.empty() ? EnvironmentOr("PERSEUS_SERVER", kServer) : flags.server;
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

Result<nlohmann::ordered_json> ServerClient::GetAll(const std::string& target,
                                                    const std::string& name,
                                                    const std::string& query) {
  auto rows = nlohmann::ordered_json::array();
  std::string after;
  do {
    auto page = Get(fmt::format("{}?limit=500{}{}", target, query,
                                after.empty() ? "" : "&after=" + http::PercentEncoded(after)));
    if (!page) return page;
    for (auto& row : page->at(name)) rows.push_back(std::move(row));
    std::string next = page->value("next", "");
    // A Perseus server never sends the same page again. Without this check, the loop would not end
    // if another program did.
    if (next == after && !next.empty()) {
      return FailAs(ErrorKind::kSystem,
                    "the server's list of {} does not end: it sends the page after {} again "
                    "(upgrade the server)",
                    name, Excerpt(next));
    }
    after = std::move(next);
  } while (!after.empty());
  return rows;
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

Result<void> WithServer(const ServerFlags& flags,
                        const std::function<Result<void>(ServerClient&)>& run) {
  PERSEUS_ASSIGN_OR_RETURN(auto server, ServerClient::Connect(flags));
  try {
    return run(server);
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
