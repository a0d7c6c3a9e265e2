// How the verbs that talk to a perseus server reach it.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "perseus/base/result.h"
#include "perseus/cluster/http/client.h"

namespace perseus::cli {

struct ServerFlags {
  std::string server;
  std::string token_file;
  std::string authority;
  std::string certificate;
  std::string key;
};

// `scope`: of the token that the verb needs.
void AddServerFlags(CLI::App& verb, ServerFlags& flags, const std::string& scope);

// The flags, or else PERSEUS_SERVER and PERSEUS_TOKEN_FILE. Fails (kInput) for a token file that
// everybody can read, or that holds none.
Result<http::ClientOptions> ClientOptionsOf(const ServerFlags& flags);

// The server's answer as JSON; its problem as an error.
class ServerClient {
 public:
  static Result<ServerClient> Connect(const ServerFlags& flags);

  Result<nlohmann::ordered_json> Get(const std::string& target);
  Result<std::string> GetText(const std::string& target);
  Result<nlohmann::ordered_json> Send(const std::string& method, const std::string& target,
                                      const std::string& body,
                                      const std::string& content_type = "application/json");
  struct Registered {
    nlohmann::ordered_json job;
    bool is_new = false;  // Else it was there.
  };
  Result<Registered> Register(const std::string& body);

 private:
  explicit ServerClient(http::Client client) : client_(std::move(client)) {}
  http::Client client_;
};

}  // namespace perseus::cli
