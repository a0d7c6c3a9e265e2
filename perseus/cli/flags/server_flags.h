// The flags and the client of the verbs that talk to a perseus server.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
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
  std::string reason;
};

// Adds the flags. `scope` is the scope of the token that the verb needs.
void AddServerFlags(CLI::App& verb, ServerFlags& flags, const std::string& scope);

// Adds --reason, for verbs that change something. The audit trail records the reason.
void AddReasonFlag(CLI::App& verb, ServerFlags& flags);

// Returns the value of --token-file. Without this flag, returns PERSEUS_TOKEN_FILE, which may be
// empty.
std::string TokenFileOf(const ServerFlags& flags);

// Takes the values of missing flags from PERSEUS_SERVER and PERSEUS_TOKEN_FILE. Fails (kInput) if
// everybody can read the token file, or if it contains no token. kLater: does not read the token
// file.
enum class TokenComes { kFromFile, kLater };
Result<http::ClientOptions> ClientOptionsOf(const ServerFlags& flags,
                                            TokenComes comes = TokenComes::kFromFile);

// A client that returns the server's answer as JSON. It returns a problem document as an error.
class ServerClient {
 public:
  static Result<ServerClient> Connect(const ServerFlags& flags);

  Result<nlohmann::ordered_json> Get(const std::string& target);
  // Returns the rows of all pages of a list: GET TARGET?limit=…&after=…QUERY. `name` is the member
  // with the rows, such as "jobs".
  Result<nlohmann::ordered_json> GetAll(const std::string& target, const std::string& name,
                                        const std::string& query = "");
  Result<std::string> GetText(const std::string& target);
  Result<nlohmann::ordered_json> Send(const std::string& method, const std::string& target,
                                      const std::string& body,
                                      const std::string& content_type = "application/json");
  struct Registered {
    nlohmann::ordered_json job;
    bool is_new = false;  // false: the job already existed.
  };
  Result<Registered> Register(const std::string& body);

 private:
  ServerClient(http::Client client, http::Fields fields)
      : client_(std::move(client)), fields_(std::move(fields)) {}
  http::Client client_;
  http::Fields fields_;  // Header fields of requests that change something.
};

// Connects to the server and calls `run`, which reads the answers. If an answer lacks a value that
// `run` reads, or if the value has another form, the result is an error.
Result<void> WithServer(const ServerFlags& flags,
                        const std::function<Result<void>(ServerClient&)>& run);

}  // namespace perseus::cli
