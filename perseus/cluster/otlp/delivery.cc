#include "perseus/cluster/otlp/delivery.h"

#include <fmt/format.h>

#include <algorithm>
#include <protozero/pbf_message.hpp>
#include <random>
#include <string_view>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/number.h"
#include "perseus/cluster/otlp/fields.h"

namespace perseus::otlp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::string_view kProtobuf = "application/x-protobuf";
constexpr std::size_t kLongestAnswer = 64 << 10;
constexpr milliseconds kFirstPause{1'000};
constexpr milliseconds kLongestPause{30'000};
constexpr seconds kLongestRetryAfter{120};
constexpr seconds kGiveUpAfter{300};

constexpr int kTooManyRequests = 429;
constexpr int kBadGateway = 502;
constexpr int kUnavailable = 503;
constexpr int kGatewayTimeout = 504;

std::string FieldOf(const http::Response& answer, std::string_view name) {
  for (const auto& [field, value] : answer.fields) {
    if (field == name) return value;
  }
  return "";
}

// Retry-After may also be a date. Then the usual pauses do.
std::optional<seconds> RetryAfter(const http::Response& answer) {
  const auto number = ParseNumber<int>(FieldOf(answer, "retry-after"));
  if (!number || *number < 0) return std::nullopt;
  return std::min<seconds>(seconds(*number), kLongestRetryAfter);
}

// The first such field of a protobuf message. Empty or 0 if there is none, or the message is wrong.
template <typename Field>
std::string_view BytesOf(std::string_view message, Field field) try {
  protozero::pbf_message<Field> reader(message.data(), message.size());
  if (!reader.next(field, protozero::pbf_wire_type::length_delimited)) return "";
  const protozero::data_view view = reader.get_view();
  return {view.data(), view.size()};
} catch (const protozero::exception&) {
  return "";
}

template <typename Field>
std::int64_t WholeOf(std::string_view message, Field field) try {
  protozero::pbf_message<Field> reader(message.data(), message.size());
  return reader.next(field, protozero::pbf_wire_type::varint) ? reader.get_int64() : 0;
} catch (const protozero::exception&) {
  return 0;
}

// What the endpoint says about a refusal: the message of google.rpc.Status, or its text.
std::string ReasonOf(const http::Response& answer) {
  const std::string_view reason = answer.content_type.starts_with(kProtobuf)
                                      ? BytesOf(answer.body, FailureField::kMessage)
                                      : std::string_view(answer.body);
  return reason.empty() ? "" : Excerpt(reason);
}

std::string StatusText(const http::Response& answer) {
  const std::string reason = ReasonOf(answer);
  return fmt::format("it answered with status {}{}{}", answer.status, reason.empty() ? "" : ": ",
                     reason);
}

}  // namespace

Result<Delivery> Delivery::Create(const std::string& name, const Endpoint& endpoint,
                                  const Settings& settings, std::function<bool()> should_end,
                                  spdlog::logger& log) {
  PERSEUS_ASSIGN_OR_RETURN(auto client,
                           http::Client::Create({.server = endpoint.origin,
                                                 .authority = settings.authority,
                                                 .certificate = settings.certificate,
                                                 .key = settings.key,
                                                 .timeout = settings.timeout,
                                                 .longest_body = kLongestAnswer,
                                                 .should_end = std::move(should_end)}));
  Delivery delivery(name, endpoint, std::move(client), log);
  delivery.random_ = SplitMix64{std::random_device()()};
  return delivery;
}

void Delivery::Put(Request request, Clock::time_point now) {
  // A new request does not shorten the pause of an endpoint that is unavailable.
  if (pause_.count() == 0) next_ = now;
  first_ = now;
  pending_ = std::move(request);
}

void Delivery::Attempt(Clock::time_point now) {
  if (!pending_) return;
  const auto answer = client_.Send({.method = "POST",
                                    .target = endpoint_.path,
                                    .body = pending_->body,
                                    .content_type = std::string(kProtobuf),
                                    .fields = endpoint_.headers});
  if (!answer) return TryLater(answer.error().message, std::nullopt, now);
  TakeAnswer(*answer, now);
}

void Delivery::TakeAnswer(const http::Response& answer, Clock::time_point now) {
  if (answer.status / 100 == 2) return TakeSuccess(answer);
  if (answer.status / 100 == 3) {
    return Refused(
        fmt::format("it redirects to {} with status {} (redirects are not followed: give the URL "
                    "that it names)",
                    Excerpt(FieldOf(answer, "location")), answer.status));
  }
  const bool is_temporary = answer.status == kTooManyRequests || answer.status == kBadGateway ||
                            answer.status == kUnavailable || answer.status == kGatewayTimeout;
  if (is_temporary) return TryLater(StatusText(answer), RetryAfter(answer), now);
  Refused(StatusText(answer));
}

void Delivery::TakeSuccess(const http::Response& answer) {
  const std::int64_t items = std::exchange(pending_, std::nullopt)->items;
  pause_ = milliseconds(0);
  std::string_view partial;
  if (answer.content_type.starts_with(kProtobuf)) {
    partial = BytesOf(answer.body, AnswerField::kPartialSuccess);
  }
  const std::int64_t refused =
      std::clamp<std::int64_t>(WholeOf(partial, PartialSuccessField::kRejected), 0, items);
  if (refused > 0) {
    const std::string_view reason = BytesOf(partial, PartialSuccessField::kMessage);
    WarnOnce(fmt::format("it refuses {} of {}: {}", refused, items,
                         reason.empty() ? "no reason" : Excerpt(reason)),
             "they are dropped");
  }
  counts_.exported += items - refused;
  counts_.refused += refused;
  if (refused == 0 && std::exchange(has_warned_, false)) {
    log_->info("otlp: {} are delivered to {} again", name_, endpoint_.origin);
  }
}

void Delivery::Refused(const std::string& why) {
  ++counts_.failures;
  counts_.refused += std::exchange(pending_, std::nullopt)->items;
  pause_ = milliseconds(0);
  WarnOnce(why, "they are dropped");
}

void Delivery::TryLater(const std::string& why, std::optional<seconds> after,
                        Clock::time_point now) {
  ++counts_.failures;
  WarnOnce(why, "they are sent again later");
  if (now - first_ >= kGiveUpAfter) GiveUp();
  pause_ = std::clamp(pause_ * 2, kFirstPause, kLongestPause);
  const auto scattered =
      std::chrono::duration_cast<Clock::duration>(pause_ * (0.5 + 0.5 * Uniform(random_)));
  next_ = Clock::now() + (after ? std::max<Clock::duration>(*after, scattered) : scattered);
}

void Delivery::GiveUp() {
  if (pending_) counts_.expired += std::exchange(pending_, std::nullopt)->items;
}

void Delivery::WarnOnce(const std::string& why, const char* consequence) {
  if (std::exchange(has_warned_, true)) return;
  log_->warn("otlp: {} cannot be delivered to {}{}: {}; {}", name_, endpoint_.origin,
             endpoint_.path, why, consequence);
}

}  // namespace perseus::otlp
