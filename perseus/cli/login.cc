// `perseus login`, `logout` and `whoami`: people and their tokens at a server.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "perseus/base/excerpt.h"
#include "perseus/cli/flag_checks.h"
#include "perseus/cli/login_session.h"
#include "perseus/cli/server_flags.h"
#include "perseus/cli/standard_output.h"
#include "perseus/cli/verbs.h"
#include "perseus/cluster/http/server_url.h"
#include "perseus/cluster/issuers/provider.h"
#include "perseus/cluster/issuers/signed_token.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kLoginAbout =
    "Log in to a perseus server as a person, with the provider that the server names (OpenID "
    "Connect, device code flow). Open the printed address in any browser, and enter the code. All "
    "verbs that talk to this server then use the login, unless they have a token file. The login "
    "is in $XDG_CONFIG_HOME/perseus (or ~/.config/perseus), and renews itself.";
constexpr const char* kLoginExamples =
    "Examples:\n"
    "  perseus login https://perseus:7410\n"
    "  perseus whoami --server https://perseus:7410\n"
    "  perseus logout https://perseus:7410";

struct LoginFlags {
  ServerFlags server;
  std::string issuer_authority;
  bool as_json = false;
};

constexpr int kLoginOk = 200;

Result<std::string> ServerOf(const ServerFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto options, ClientOptionsOf(flags, TokenComes::kLater));
  PERSEUS_ASSIGN_OR_RETURN(const auto servers, http::ParseServerUrls(options.server));
  const std::string& server = servers.front().text;
  if (const auto safe = issuers::ParseProviderUrl(server); !safe) {
    return Fail("others could read the token on the way to {} (use https)", server);
  }
  return server;
}

std::string AnswerText(const ordered_json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

int AnswerNumber(const ordered_json& json, const char* name, int otherwise) {
  constexpr double kMost = 86'400;
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number()) return otherwise;
  return static_cast<int>(std::clamp(found->get<double>(), 1.0, kMost));
}

struct DeviceCode {
  std::string code;
  std::string address;
  std::string user_code;
  int interval_s = 5;  // As RFC 8628 has it, if the provider does not say.
  int lasts_s = 600;
};

Result<DeviceCode> AskForCode(const Login& login, const std::string& device_url,
                              const std::string& scopes) {
  std::string form =
      "client_id=" + http::PercentEncoded(login.client) + "&scope=" + http::PercentEncoded(scopes);
  if (!login.resource.empty()) form += "&resource=" + http::PercentEncoded(login.resource);
  PERSEUS_ASSIGN_OR_RETURN(const auto answer,
                           issuers::Ask(device_url, {.authority = login.issuer_authority}, form));
  const auto body = ordered_json::parse(answer.body, nullptr, false);
  if (answer.status != kLoginOk || !body.is_object()) {
    return FailAs(ErrorKind::kSystem,
                  "{} refuses the login: {} {} (is client {} allowed to use "
                  "the device code flow, and are the scopes right?)",
                  device_url, Excerpt(body.is_object() ? AnswerText(body, "error") : ""),
                  Excerpt(body.is_object() ? AnswerText(body, "error_description") : ""),
                  login.client);
  }
  DeviceCode code{.code = AnswerText(body, "device_code"),
                  .address = AnswerText(body, "verification_uri_complete"),
                  .user_code = AnswerText(body, "user_code"),
                  .interval_s = AnswerNumber(body, "interval", 5),
                  .lasts_s = AnswerNumber(body, "expires_in", 600)};
  if (code.address.empty()) code.address = AnswerText(body, "verification_uri");
  if (code.code.empty() || !IsPrintable(code.user_code) || !IsPrintable(code.address) ||
      !code.address.starts_with("http")) {
    return FailAs(ErrorKind::kSystem,
                  "{} gave no device code (enable the device flow for this client)", device_url);
  }
  return code;
}

// Asks until the person has decided (RFC 8628, 3.4 and 3.5).
Result<Login> WaitForPerson(const Login& login, const DeviceCode& code) {
  using Clock = std::chrono::steady_clock;
  constexpr int kSlowDown = 5;
  const auto until = Clock::now() + std::chrono::seconds(code.lasts_s);
  const std::string form =
      "grant_type=" + http::PercentEncoded("urn:ietf:params:oauth:grant-type:device_code") +
      "&device_code=" + http::PercentEncoded(code.code) +
      "&client_id=" + http::PercentEncoded(login.client);
  int interval_s = code.interval_s;
  while (Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::seconds(interval_s));
    const auto answer = AskForTokens(login, form);
    // Also without an answer: the connection may come back, and the code is still good.
    if (!answer) {
      if (answer.error().kind != ErrorKind::kSystem) return Fail(answer);
      interval_s += kSlowDown;
      continue;
    }
    if (answer->error.empty()) return answer->login;
    if (answer->error == "slow_down") interval_s += kSlowDown;
    if (answer->error == "slow_down" || answer->error == "authorization_pending") continue;
    if (answer->error == "access_denied") {
      return Fail("the login was denied in the browser (run perseus login again to allow it)");
    }
    if (answer->error == "expired_token") break;
    return Fail(
        "the provider refuses the login: {} {} (run perseus login again, or ask its administrator)",
        Excerpt(answer->error), Excerpt(answer->description));
  }
  return Fail("nobody entered the code in time (run perseus login again)");
}

std::string WordsOf(const ordered_json& list) {
  std::string text;
  for (const ordered_json& item : list) {
    if (!text.empty()) text += " ";
    text += item.get<std::string>();
  }
  return text;
}

std::string WhoText(const ordered_json& who) {
  std::string text = who.at("name").get<std::string>();
  // Only tokens have an id.
  if (const auto id = who.at("id").get<std::string>(); !id.empty()) text += " (" + id + ")";
  text += ", scope " + who.at("scope").get<std::string>();
  for (const auto& [key, what] :
       {std::pair("owners", "jobs of"), std::pair("nodes", "nodes"), std::pair("jobs", "jobs")}) {
    if (who.contains(key)) text += fmt::format(", {} {}", what, WordsOf(who[key]));
  }
  if (who.contains("expires")) {
    text += fmt::format(", until {}", who["expires"].get<std::string>());
  }
  return text;
}

Result<ordered_json> AskWho(const ServerFlags& flags, const std::string& token) {
  PERSEUS_ASSIGN_OR_RETURN(auto options, ClientOptionsOf(flags, TokenComes::kLater));
  options.token = token;
  PERSEUS_ASSIGN_OR_RETURN(auto client, http::Client::Create(std::move(options)));
  PERSEUS_ASSIGN_OR_RETURN(const auto text, client.Fetch({.target = "/v1/whoami"}));
  auto who = ordered_json::parse(text, nullptr, false);
  if (!who.is_object()) {
    return FailAs(ErrorKind::kSystem, "the server's answer is not JSON (is it a perseus server?)");
  }
  return who;
}

// Later commands may run in another directory.
std::string FromAnywhere(const std::string& file) {
  return file.empty() ? "" : std::filesystem::absolute(file).string();
}

Result<void> LogIn(const Streams& streams, const LoginFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto server, ServerOf(flags.server));
  PERSEUS_ASSIGN_OR_RETURN(auto options, ClientOptionsOf(flags.server, TokenComes::kLater));
  PERSEUS_ASSIGN_OR_RETURN(auto client, http::Client::Create(std::move(options)));
  PERSEUS_ASSIGN_OR_RETURN(const auto text, client.Fetch({.target = "/v1/login"}));
  const auto offer = ordered_json::parse(text, nullptr, false);
  if (offer == ordered_json::object()) {
    return Fail(
        "{} has no login for people (its operator adds [issuer.login] to the file of perseus serve "
        "--issuers; or use a token, --token-file)",
        server);
  }
  if (!offer.is_object() || !offer.contains("scopes") || !offer["scopes"].is_array()) {
    return FailAs(ErrorKind::kSystem, "{} does not say how to log in (is it a perseus server?)",
                  server);
  }
  Login login{.server = server,
              .server_authority = FromAnywhere(flags.server.authority),
              .issuer = AnswerText(offer, "issuer"),
              .issuer_authority = FromAnywhere(flags.issuer_authority),
              .client = AnswerText(offer, "client_id"),
              .kind = AnswerText(offer, "token"),
              .resource = AnswerText(offer, "resource"),
              .token_url = ""};
  PERSEUS_ASSIGN_OR_RETURN(const auto provider,
                           issuers::Discover(login.issuer, {.authority = flags.issuer_authority}));
  if (provider.device_url.empty()) {
    return Fail("{} has no device code flow (enable it there, or use a token of the server)",
                login.issuer);
  }
  login.token_url = provider.token_url;
  login.revocation_url = provider.revocation_url;
  PERSEUS_ASSIGN_OR_RETURN(const auto code,
                           AskForCode(login, provider.device_url, WordsOf(offer["scopes"])));
  std::fputs(fmt::format("Open {}\nand enter the code {}\n", code.address, code.user_code).c_str(),
             streams.err);
  PERSEUS_ASSIGN_OR_RETURN(login, WaitForPerson(login, code));
  PERSEUS_ASSIGN_OR_RETURN(const auto who, AskWho(flags.server, login.token));
  PERSEUS_RETURN_IF_ERROR(KeepLogin(login));
  return streams.Print(fmt::format("logged in to {} as {}\n", server, WhoText(who)));
}

Result<void> LogOut(const Streams& streams, const LoginFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto server, ServerOf(flags.server));
  PERSEUS_ASSIGN_OR_RETURN(const auto login, FindLogin(server));
  PERSEUS_ASSIGN_OR_RETURN(const bool was_there, ForgetLogin(server));
  if (!was_there) return streams.Print(fmt::format("there was no login at {}\n", server));
  std::string revoked;
  if (login && !login->revocation_url.empty() && !login->refresh_token.empty()) {
    const auto answer = issuers::Ask(
        login->revocation_url, {.authority = login->issuer_authority},
        "token=" + http::PercentEncoded(login->refresh_token) +
            "&token_type_hint=refresh_token&client_id=" + http::PercentEncoded(login->client));
    if (!answer || answer->status != kLoginOk) {
      revoked = fmt::format("; {} did not revoke it", login->issuer);
    }
  }
  return streams.Print(fmt::format("logged out of {}{}\n", server, revoked));
}

Result<void> WhoAmI(const Streams& streams, const LoginFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(auto server, ServerClient::Connect(flags.server));
  PERSEUS_ASSIGN_OR_RETURN(const auto who, server.Get("/v1/whoami"));
  return streams.Print(flags.as_json ? who.dump(2) + "\n" : WhoText(who) + "\n");
}

void AddServerName(CLI::App& verb, LoginFlags& flags) {
  verb.add_option("server", flags.server.server,
                  "URL of the server (default: PERSEUS_SERVER, or http://127.0.0.1:7410)")
      ->type_name("SERVER");
}

}  // namespace

Verb AddLoginVerb(CLI::App& program) {
  auto flags = std::make_shared<LoginFlags>();
  CLI::App* verb = program.add_subcommand("login", kLoginAbout);
  verb->footer(kLoginExamples);
  AddServerName(*verb, *flags);
  verb->add_option("--ca", flags->server.authority,
                   "Certificate authority of the server (PEM; default: those of the system)")
      ->type_name("FILE")
      ->check(InputFile());
  verb->add_option("--issuer-ca", flags->issuer_authority,
                   "Certificate authority of the provider (PEM; default: those of the system)")
      ->type_name("FILE")
      ->check(InputFile());
  return {verb, [flags](const Streams& streams) {
            return ReadingAnswers([&] { return LogIn(streams, *flags); });
          }};
}

Verb AddLogoutVerb(CLI::App& program) {
  auto flags = std::make_shared<LoginFlags>();
  CLI::App* verb = program.add_subcommand(
      "logout", "Forget the login at a perseus server, and let the provider revoke it.");
  verb->footer("Examples:\n  perseus logout https://perseus:7410");
  AddServerName(*verb, *flags);
  return {verb, [flags](const Streams& streams) {
            return ReadingAnswers([&] { return LogOut(streams, *flags); });
          }};
}

Verb AddWhoamiVerb(CLI::App& program) {
  auto flags = std::make_shared<LoginFlags>();
  CLI::App* verb = program.add_subcommand(
      "whoami", "Show who the server takes you for, and what you may do there.");
  verb->footer("Examples:\n  perseus whoami\n  perseus whoami --json --token-file bob.token");
  AddServerFlags(*verb, flags->server, "of any kind");
  verb->add_flag("--json", flags->as_json, "Print JSON, for scripts");
  return {verb, [flags](const Streams& streams) {
            return ReadingAnswers([&] { return WhoAmI(streams, *flags); });
          }};
}

}  // namespace perseus::cli
