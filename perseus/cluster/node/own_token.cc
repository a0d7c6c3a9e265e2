#include "perseus/cluster/node/own_token.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/file.h"
#include "perseus/base/json_text.h"
#include "perseus/base/random_id.h"
#include "perseus/cluster/http/client.h"
#include "perseus/cluster/node/uplink.h"

namespace perseus::node {
namespace {

constexpr Nanoseconds kAgainAfter = 5 * kSecond;
constexpr Nanoseconds kCheckApart = 60 * kSecond;
// All replicas know a new token after this time, because they read new tokens several times per
// second.
constexpr Nanoseconds kKnownEverywhereAfter = 10 * kSecond;
constexpr std::size_t kAttemptBytes = 32;

bool IsAttempt(const std::string& text) {
  return text.size() == 2 * kAttemptBytes &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Replaces the file. From the first byte on, only the owner can read it.
Result<void> WriteSecretFile(const std::filesystem::path& path, const std::string& secret) {
  return WriteFileAtomically(path, secret + "\n", Readers::kOwner);
}

}  // namespace

Result<std::string> ReadSecretFile(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && (status.st_mode & S_IROTH) != 0) {
    return Fail("everybody on this machine can read the token in {} (chmod 0640 {})", path.string(),
                path.string());
  }
  PERSEUS_ASSIGN_OR_RETURN(auto text, ReadFile(path));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty() || !IsPrintable(text)) {
    return Fail("{} contains no token (expected one line, as perseus token create printed it)",
                path.string());
  }
  return text;
}

Result<void> OwnToken::Load() {
  std::error_code error;
  if (!std::filesystem::exists(options_.file, error)) {
    must_join_ = true;
    return {};
  }
  PERSEUS_ASSIGN_OR_RETURN(auto token, ReadSecretFile(options_.file));
  const MutexLock lock(mutex_);
  token_ = std::move(token);
  return {};
}

std::string OwnToken::token() const {
  const MutexLock lock(mutex_);
  return token_;
}

void OwnToken::Refused(Nanoseconds now) {
  if (now < next_check_ || must_join_) return;
  next_check_ = now + kCheckApart;
  next_ = 0;
}

void OwnToken::Turn(Nanoseconds now) {
  if (now < next_) return;
  now_ = now;
  next_ = now + kAgainAfter;
  must_join_ ? Join() : Renew();
}

const std::string& OwnToken::Attempt() {
  if (!attempt_.empty()) return attempt_;
  if (auto kept = ReadSecretFile(AttemptFile()); kept && IsAttempt(*kept)) {
    attempt_ = *std::move(kept);
    return attempt_;
  }
  attempt_ = RandomHex(kAttemptBytes);
  // If the file cannot be written, only this process can repeat the attempt.
  if (auto written = WriteSecretFile(AttemptFile(), attempt_); !written) {
    log_.warn("{}", written.error().Message());
  }
  return attempt_;
}

void OwnToken::ForgetAttempt() {
  std::error_code error;
  std::filesystem::remove(AttemptFile(), error);
  attempt_.clear();
}

void OwnToken::Join() {
  const auto join = options_.credential();
  if (!join) return WarnOnce(join.error().Message());
  const auto answer = send_(fmt::format("/v1/nodes/{}/token", http::PercentEncoded(options_.node)),
                            *join, JsonText(nlohmann::json{{"attempt", Attempt()}}));
  if (!answer) return WarnOnce(answer.error().Message());
  if (!IsSuccess(*answer)) {
    return WarnOnce(
        fmt::format("the server does not give node {} a token: {}; the request is "
                    "repeated every 5 s",
                    options_.node, ProblemText(*answer)));
  }
  if (Take(*answer)) log_.info("node {} has a token of its own", options_.node);
}

void OwnToken::Renew() {
  const auto answer = send_(fmt::format("/v1/nodes/{}/token", http::PercentEncoded(options_.node)),
                            "Bearer " + token(), "");
  if (!answer) return WarnOnce(answer.error().Message());
  if (answer->status == 401 || answer->status == 403) {
    WarnOnce(fmt::format("the server does not renew the token of node {}: {}; the node joins again",
                         options_.node, ProblemText(*answer)));
    must_join_ = true;
    next_ = 0;
    return;
  }
  if (!IsSuccess(*answer)) {
    return WarnOnce(fmt::format("the token of node {} is not renewed: {}", options_.node,
                                ProblemText(*answer)));
  }
  if (Take(*answer)) ForgetAttempt();
}

bool OwnToken::Take(const http::Response& answer) {
  const auto json = ParseJson(answer.body);
  std::string secret = TextOf(answer, "token");
  if (secret.empty() || !json.contains("renew_in_s") || !json["renew_in_s"].is_number_integer()) {
    WarnOnce("the server's answer has no token (is it a perseus server?)");
    return false;
  }
  if (const auto written = WriteSecretFile(options_.file, secret); !written) {
    // If the token cannot be written, it still works until this process ends.
    WarnOnce(written.error().Message());
  } else {
    warned_.clear();
  }
  next_check_ = now_ + kKnownEverywhereAfter;
  next_ = now_ + json["renew_in_s"].get<std::int64_t>() * kSecond;
  must_join_ = false;
  const MutexLock lock(mutex_);
  token_ = std::move(secret);
  return true;
}

void OwnToken::WarnOnce(const std::string& message) {
  if (std::exchange(warned_, message) != message) log_.warn("{}", message);
}

}  // namespace perseus::node
