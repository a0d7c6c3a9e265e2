#include "perseus/cluster/node/run_node.h"

#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "perseus/base/units.h"
#include "perseus/cluster/munge/credential.h"
#include "perseus/cluster/node/mailbox.h"
#include "perseus/cluster/node/own_token.h"

namespace perseus::node {
namespace {

// How often the logs are read.
constexpr Nanoseconds kTurnEvery = 50 * kMillisecond;
// The pause after the server refused the stream.
constexpr Nanoseconds kListenAgainAfter = 5'000 * kMillisecond;
// The timeout of one request. The thread waits for the answer.
constexpr std::chrono::milliseconds kRunNodeTimeout{5000};

std::string RandomInstance() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

void Listen(http::Client& client, const std::string& target, Mailbox& mailbox,
            const std::atomic<bool>& is_over, Clock& clock, spdlog::logger& log) {
  std::string last_error;  // The last error, so that each error is logged once.
  while (!is_over) {
    http::Client::Listening listening;
    listening.target = target;
    listening.position = [&mailbox] { return mailbox.position(); };
    listening.on_event = [&](const http::Event& event) {
      mailbox.Put(event);
      return !is_over;
    };
    listening.on_change = [&](std::string_view what) {
      last_error.clear();
      log.info("{}", what);
    };
    listening.should_end = [&is_over] { return is_over.load(); };
    const auto ended = client.Listen(listening);
    if (ended || is_over) continue;
    if (ended.error().kind == ErrorKind::kUnreachable) mailbox.is_name_lost = true;
    if (ended.error().kind == ErrorKind::kInput) mailbox.is_refused = true;
    if (last_error != ended.error().Message()) {
      last_error = ended.error().Message();
      log.error("{}; ranks keep their assignment, and the connection is retried", last_error);
    }
    const Nanoseconds again = clock.Now() + kListenAgainAfter;
    while (!is_over && clock.Now() < again) clock.WaitUntil(clock.Now() + kTurnEvery);
  }
}

std::function<Result<std::string>()> JoinCredential(const NodeOptions& options) {
  if (options.munge_server.empty()) {
    return [file = options.join_token_file]() -> Result<std::string> {
      PERSEUS_ASSIGN_OR_RETURN(const auto token, ReadSecretFile(file));
      return "Bearer " + token;
    };
  }
  const std::string text = munge::JoinText(options.munge_server, options.name);
  return [text, socket = options.munge_socket]() -> Result<std::string> {
    PERSEUS_ASSIGN_OR_RETURN(const auto credential, munge::Encode(text, socket));
    return "Munge " + credential;
  };
}

}  // namespace

Result<void> RunNode(NodeOptions options, const http::ClientOptions& server,
                     const std::function<bool()>& should_end, Clock& clock, spdlog::logger& log) {
  http::ClientOptions with_timeout = server;
  with_timeout.timeout = kRunNodeTimeout;
  http::ClientOptions for_stream = server;
  http::ClientOptions for_token = with_timeout;
  for_token.token.clear();
  PERSEUS_ASSIGN_OR_RETURN(auto enroller, http::Client::Create(for_token));
  const bool enrolls = !options.join_token_file.empty() || !options.munge_server.empty();
  OwnToken own(
      {.node = options.name, .file = options.own_token_file, .credential = JoinCredential(options)},
      [&](const std::string& target, const std::string& authorization, const std::string& body) {
        return enroller.Send({.method = "POST",
                              .target = target,
                              .body = body,
                              .fields = {{"authorization", authorization}}});
      },
      log);
  if (enrolls) {
    PERSEUS_RETURN_IF_ERROR(own.Load());
    with_timeout.token_of = for_stream.token_of = [&own] { return own.token(); };
    own.Turn(clock.Now());
  }
  PERSEUS_ASSIGN_OR_RETURN(auto asking, http::Client::Create(with_timeout));
  PERSEUS_ASSIGN_OR_RETURN(auto listening, http::Client::Create(for_stream));

  options.instance = RandomInstance();
  const std::string stream = fmt::format("/v1/nodes/{}/events?instance={}",
                                         http::PercentEncoded(options.name), options.instance);
  Node node(
      std::move(options),
      [&](const auto& request) {
        auto answer = asking.Send(request);
        if (enrolls && answer && answer->status == 401) own.Refused(clock.Now());
        return answer;
      },
      log);
  Mailbox mailbox;
  std::atomic<bool> is_over = false;
  // The first turn comes before listening, because the assignments in the directories determine
  // which events the server sends.
  node.Turn(clock.Now());
  mailbox.SetPosition(node.LastEventId());
  std::thread listener([&] { Listen(listening, stream, mailbox, is_over, clock, log); });
  while (!should_end()) {
    const std::uint32_t received = mailbox.count().load();
    if (mailbox.is_name_lost.exchange(false)) node.LoseName();
    if (mailbox.is_refused.exchange(false)) own.Refused(clock.Now());
    if (enrolls) own.Turn(clock.Now());
    for (const http::Event& event : mailbox.TakeAll()) node.Receive(event);
    node.Turn(clock.Now());
    mailbox.SetPosition(node.LastEventId());
    clock.WaitWhile(mailbox.count(), received, clock.Now() + kTurnEvery);
  }
  is_over = true;
  mailbox.Close();
  listener.join();
  return {};
}

}  // namespace perseus::node
