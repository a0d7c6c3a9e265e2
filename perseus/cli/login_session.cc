#include "perseus/cli/login_session.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/excerpt.h"
#include "perseus/base/file.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/base/system_cause.h"
#include "perseus/cluster/http/client.h"
#include "perseus/cluster/issuers/provider.h"
#include "perseus/cluster/issuers/signed_token.h"
#include "perseus/cluster/node/own_token.h"

namespace perseus::cli {
namespace {

using nlohmann::json;

constexpr std::int64_t kRefreshBefore = 30;
constexpr std::int64_t kDefaultLife = 300;
constexpr int kTokensGiven = 200;
constexpr auto kOwnerOnly = std::filesystem::perms::owner_all;

std::int64_t NowSeconds() { return SinceEpoch() / kSecond; }

Result<std::filesystem::path> LoginDirectory() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  const char* home = std::getenv("HOME");
  const bool has_config = config != nullptr && *config == '/';
  if (!has_config && (home == nullptr || *home == '\0')) {
    return Fail("neither XDG_CONFIG_HOME nor HOME is set (set one, for the file of the login)");
  }
  const std::filesystem::path base =
      has_config ? std::filesystem::path(config) : std::filesystem::path(home) / ".config";
  return base / "perseus" / "logins";
}

Result<std::filesystem::path> LoginFile(const std::string& server) {
  PERSEUS_ASSIGN_OR_RETURN(const auto directory, LoginDirectory());
  return directory / (http::PercentEncoded(server) + ".json");
}

std::string MemberText(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// When the token ends: as it says itself, or as the provider says.
std::int64_t ExpiryOf(const std::string& token, const json& answer) {
  if (const auto parsed = issuers::ReadSignedToken(token)) {
    const json* expires = issuers::FindClaim(parsed->claims, "exp");
    if (expires != nullptr && expires->is_number()) return expires->get<std::int64_t>();
  }
  const auto lasts = answer.find("expires_in");
  return NowSeconds() +
         (lasts != answer.end() && lasts->is_number() ? lasts->get<std::int64_t>() : kDefaultLife);
}

// Held until the descriptor closes.
Result<FileDescriptor> LockLogins() {
  PERSEUS_ASSIGN_OR_RETURN(const auto directory, LoginDirectory());
  FileDescriptor file(::open((directory / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file || ::flock(file.get(), LOCK_EX) != 0) {
    return FailAs(ErrorKind::kSystem, "cannot lock {}: {} (may this user write there?)",
                  directory.string(), std::strerror(errno));
  }
  return file;
}

}  // namespace

Result<TokenAnswer> AskForTokens(const Login& login, const std::string& form) {
  PERSEUS_ASSIGN_OR_RETURN(
      const auto answer,
      issuers::Ask(login.token_url, {.authority = login.issuer_authority}, form));
  const json body = json::parse(answer.body, nullptr, false);
  if (!body.is_object()) {
    return FailAs(
        ErrorKind::kSystem,
        "{} answered with status {} and no JSON (is it the provider's address for tokens?)",
        login.token_url, answer.status);
  }
  TokenAnswer result{.error = MemberText(body, "error"),
                     .description = MemberText(body, "error_description"),
                     .login = login};
  if (answer.status != kTokensGiven || !result.error.empty()) {
    if (result.error.empty()) result.error = "status " + std::to_string(answer.status);
    return result;
  }
  const std::string token = MemberText(body, login.kind.c_str());
  if (token.empty()) {
    return FailAs(ErrorKind::kSystem,
                  "{} gave no {} (the scopes of [issuer.login] need openid for an id_token)",
                  login.token_url, login.kind);
  }
  result.login.token = token;
  result.login.expires_s = ExpiryOf(token, body);
  // A provider that keeps the refresh token does not repeat it.
  if (std::string next = MemberText(body, "refresh_token"); !next.empty()) {
    result.login.refresh_token = std::move(next);
  }
  return result;
}

Result<std::optional<Login>> FindLogin(const std::string& server) {
  const auto file = LoginFile(server);
  std::error_code error;
  if (!file || !std::filesystem::exists(*file, error)) return std::optional<Login>();
  struct stat status {};
  if (::stat(file->c_str(), &status) == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return Fail("others can read the login in {} (chmod 0600 {})", file->string(), file->string());
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(*file));
  const json stored = json::parse(text, nullptr, false);
  if (!stored.is_object() || MemberText(stored, "server") != server) {
    return Fail("{} is not a login (remove it, and run perseus login {})", file->string(), server);
  }
  Login login{.server = server,
              .server_authority = MemberText(stored, "server_ca"),
              .issuer = MemberText(stored, "issuer"),
              .issuer_authority = MemberText(stored, "issuer_ca"),
              .client = MemberText(stored, "client_id"),
              .kind = MemberText(stored, "kind"),
              .resource = MemberText(stored, "resource"),
              .token_url = MemberText(stored, "token_endpoint"),
              .revocation_url = MemberText(stored, "revocation_endpoint"),
              .token = MemberText(stored, "token"),
              .refresh_token = MemberText(stored, "refresh_token"),
              .expires_s = stored.value("expires_s", std::int64_t{0})};
  return std::optional(std::move(login));
}

Result<void> KeepLogin(const Login& login) {
  PERSEUS_ASSIGN_OR_RETURN(const auto file, LoginFile(login.server));
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  std::filesystem::permissions(file.parent_path(), kOwnerOnly, error);
  const json stored{{"server", login.server},
                    {"server_ca", login.server_authority},
                    {"issuer", login.issuer},
                    {"issuer_ca", login.issuer_authority},
                    {"client_id", login.client},
                    {"kind", login.kind},
                    {"resource", login.resource},
                    {"token_endpoint", login.token_url},
                    {"revocation_endpoint", login.revocation_url},
                    {"token", login.token},
                    {"refresh_token", login.refresh_token},
                    {"expires_s", login.expires_s}};
  return node::WriteSecretFile(file, stored.dump(2));
}

Result<bool> ForgetLogin(const std::string& server) {
  PERSEUS_ASSIGN_OR_RETURN(const auto file, LoginFile(server));
  std::error_code error;
  const bool was_there = std::filesystem::remove(file, error);
  if (error) {
    return FailAs(ErrorKind::kSystem, "cannot remove {}: {}", file.string(), CauseAndRemedy(error));
  }
  return was_there;
}

Result<Login> FreshLogin(const Login& login) {
  if (NowSeconds() + kRefreshBefore < login.expires_s) return login;
  PERSEUS_ASSIGN_OR_RETURN(const FileDescriptor lock, LockLogins());
  // Another command may have refreshed it while this one waited.
  PERSEUS_ASSIGN_OR_RETURN(const auto stored, FindLogin(login.server));
  const Login newest = stored.value_or(login);
  if (NowSeconds() + kRefreshBefore < newest.expires_s) return newest;
  const std::string remedy = "run perseus login " + login.server;
  if (newest.refresh_token.empty()) {
    return Fail("the login at {} has ended ({})", login.server, remedy);
  }
  std::string form =
      "grant_type=refresh_token&refresh_token=" + http::PercentEncoded(newest.refresh_token) +
      "&client_id=" + http::PercentEncoded(newest.client);
  if (!newest.resource.empty()) form += "&resource=" + http::PercentEncoded(newest.resource);
  PERSEUS_ASSIGN_OR_RETURN(const auto answer, AskForTokens(newest, form));
  if (!answer.error.empty()) {
    return Fail("the login at {} has ended: {} {} ({})", login.server, Excerpt(answer.error),
                Excerpt(answer.description), remedy);
  }
  PERSEUS_RETURN_IF_ERROR(KeepLogin(answer.login));
  return answer.login;
}

}  // namespace perseus::cli
