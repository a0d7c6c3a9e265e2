// The node's own token. Gets the token with a join token, renews it, and keeps it in a file.
//
//   credential ──► POST /v1/nodes/N/token ──► own token ──► file
//                          ▲    own token, after half of its life
//
// The credential is a join token or a munge credential.
//
// A node that starts renews the token in its file. If the server no longer accepts that token, the
// node joins again, provided that its credential is still valid.
//
// The answer to a join may be lost if the server dies. A join token gives each name one token, so a
// second join would be refused. So each join has an attempt: a random number that only this node
// knows. The server replaces the token of the same attempt, until the node has renewed the token.
// The node keeps the attempt in a file from before the join until that renewal.
//
// Other replicas of the server receive a new secret a moment later than the replica that made it.
// So a 401 just after a renewal is ignored. A later 401 starts a renewal, perhaps at another
// replica.
//
// token() is thread safe. All other methods are for one thread.
#pragma once

#include <spdlog/logger.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "perseus/base/mutex.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/cluster/http/message.h"

namespace perseus::node {

class OwnToken {
 public:
  struct Options {
    std::string node;            // The name.
    std::filesystem::path file;  // Contains this node's token. Only the file's owner can read it.
    // Returns the Authorization field to join with. Called for each attempt.
    std::function<Result<std::string>()> credential;
  };
  // Sends POST `target` with this Authorization field and this body.
  using Send = std::function<Result<http::Response>(
      const std::string& target, const std::string& authorization, const std::string& body)>;
  OwnToken(Options options, Send send, spdlog::logger& log)
      : options_(std::move(options)), send_(std::move(send)), log_(log) {}

  // Reads the file, if it exists. Fails (kInput) if it cannot be read, or if everybody can read it.
  Result<void> Load();
  // Joins, or renews the token, if this is due. Call it often.
  void Turn(Nanoseconds now);
  // Handles a 401 to a request with this token. Also handles a refusal of the event stream, because
  // the token may be the reason. Renews the token, at most once a minute. The answer shows whether
  // the server still accepts the token.
  void Refused(Nanoseconds now);
  // The node's token. Empty before the node has joined.
  std::string token() const PERSEUS_EXCLUDES(mutex_);

 private:
  void Join();
  // Returns the attempt of the last join whose token was not renewed, or a new attempt.
  const std::string& Attempt();
  void ForgetAttempt();
  std::filesystem::path AttemptFile() const { return options_.file.string() + ".attempt"; }
  void Renew();
  // If the answer contains a token, makes it this node's token and returns true.
  bool Take(const http::Response& answer);
  void WarnOnce(const std::string& message);

  const Options options_;
  const Send send_;
  spdlog::logger& log_;
  Nanoseconds next_ = 0;  // When to join or renew.
  Nanoseconds now_ = 0;
  Nanoseconds next_check_ = 0;  // The earliest time at which Refused() renews.
  bool must_join_ = false;
  std::string warned_;
  std::string attempt_;  // The attempt of the current join. Empty until it is read.
  mutable Mutex mutex_;
  std::string token_ PERSEUS_GUARDED_BY(mutex_);
};

// Reads a file with a secret on one line. Fails (kInput) if everybody can read it, or if it has no
// secret.
Result<std::string> ReadSecretFile(const std::filesystem::path& path);

}  // namespace perseus::node
