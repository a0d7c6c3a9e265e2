// Reads what an OpenID Connect provider publishes about itself (OpenID Connect Discovery 1.0).
//
// Only for .cc files that link nlohmann_json.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/cluster/http/client.h"

namespace perseus::issuers {

struct ProviderUrl {
  std::string origin;  // "https://login.example.com:443"
  std::string path;    // "/realms/a". May be empty.
};
// Fails (kInput) unless it is https without user, query and fragment. http is accepted for a
// loopback address only, because who can change the answer can make tokens.
Result<ProviderUrl> ParseProviderUrl(std::string_view url);

struct ProviderAccess {
  std::string authority = {};    // PEM file. Empty: the authorities of the system.
  std::string bearer_file = {};  // Read for each request. Empty: none.
  std::chrono::milliseconds timeout{5'000};
};

// One request to a provider. `form`: for POST, application/x-www-form-urlencoded. Fails (kSystem)
// if there is no answer. Redirects are not followed.
Result<http::Response> Ask(const std::string& url, const ProviderAccess& access,
                           const std::string& form = "");
// The text of the answer to GET. Fails (kSystem) unless the status is 200.
Result<std::string> Fetch(const std::string& url, const ProviderAccess& access);

struct Provider {
  std::string keys_url;
  std::string device_url;  // Empty: no device code flow.
  std::string token_url;
  std::string revocation_url;  // May be empty.
};
// Reads ISSUER/.well-known/openid-configuration. Fails unless it is about this issuer.
Result<Provider> Discover(const std::string& issuer, const ProviderAccess& access);

}  // namespace perseus::issuers
