// The logins of this user at servers: who gave the token, the token, and how to get the next one.
//
// Each login is a file that only the user can read: $XDG_CONFIG_HOME/perseus/logins/SERVER.json
// ($HOME/.config without XDG_CONFIG_HOME). Several commands may run at once. A refresh token may be
// good for one use only, so one command at a time refreshes (a lock), and others use its result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "perseus/base/result.h"

namespace perseus::cli {

struct Login {
  std::string server;                 // "https://perseus:7410"
  std::string server_authority = {};  // --ca of the login.
  std::string issuer;
  std::string issuer_authority = {};
  std::string client;
  std::string kind;  // "id_token" or "access_token": what the server accepts.
  std::string resource = {};
  std::string token_url;
  std::string revocation_url = {};
  std::string token = {};
  std::string refresh_token = {};  // May be empty: then the login ends with the token.
  std::int64_t expires_s = 0;      // Since 1970.
};

// What the provider answered to a request for tokens: the error code of OAuth, or the login with
// the new tokens.
struct TokenAnswer {
  std::string error = {};
  std::string description = {};
  Login login = {};
};
// Sends the form to the token endpoint. Fails (kSystem) if there is no answer.
Result<TokenAnswer> AskForTokens(const Login& login, const std::string& form);

// Nothing if there is no login at the server, which must be as ParseServerUrls returns it.
Result<std::optional<Login>> FindLogin(const std::string& server);
Result<void> KeepLogin(const Login& login);
// Whether there was one.
Result<bool> ForgetLogin(const std::string& server);

// The login with a token that lasts for at least half a minute. Refreshes it if needed. Fails if
// the provider does not give another token, with the remedy.
Result<Login> FreshLogin(const Login& login);

}  // namespace perseus::cli
