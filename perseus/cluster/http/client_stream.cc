#include "perseus/cluster/http/client_stream.h"

#include <algorithm>
#include <utility>

namespace perseus::http {
namespace {

constexpr std::size_t kLongestAnswerHead = 64 << 10;

}  // namespace

void ClientStream::Begin(ClientConnection& connection, const ServerUrl& server) {
  rest_.clear();
  is_event_ = false;
  answer_.reset();
  const std::lock_guard lock(mutex_);
  connection_ = &connection;
  server_ = server;
  is_broken_ = false;
}

void ClientStream::End() {
  const std::lock_guard lock(mutex_);
  connection_ = nullptr;
  changed_.notify_all();
}

bool ClientStream::IsBroken() const {
  const std::lock_guard lock(mutex_);
  return is_broken_;
}

std::size_t ClientStream::TakeEvent(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '\n' && last_ == '\n') {
      is_event_ = false;
      return i + 1;
    }
    last_ = bytes[i];
  }
  return bytes.size();
}

Result<std::size_t> ClientStream::TakeAnswer(std::string_view bytes) {
  std::size_t used = 0;
  for (std::size_t more = 1; more > 0 && used < bytes.size() && !answer_->IsDone();) {
    more = answer_->Put(bytes.substr(used));
    used += more;
    if (!answer_->failure().empty()) {
      return FailAs(ErrorKind::kSystem, "its answer is not HTTP: {}", answer_->failure());
    }
  }
  if (!answer_->IsDone()) return used;
  Response response = ResponseOf(*answer_);
  answer_.reset();
  const std::lock_guard lock(mutex_);
  if (!std::exchange(is_waiting_, false)) {
    return FailAs(ErrorKind::kSystem, "it sent an answer without a request");
  }
  received_ = std::move(response);
  changed_.notify_all();
  return used;
}

Result<std::string> ClientStream::Put(std::string_view bytes) {
  std::string events;
  rest_ += bytes;
  while (!rest_.empty()) {
    if (!is_event_ && !answer_) {
      const std::size_t known = std::min(rest_.size(), kAnswerMark.size());
      const bool may_be_answer = kAnswerMark.starts_with(rest_.substr(0, known));
      if (may_be_answer && known < kAnswerMark.size()) break;
      is_event_ = !may_be_answer;
      last_ = '\0';
      if (may_be_answer) {
        answer_ = std::make_unique<ResponseParser>(
            Expected::kBody, RequestParser::Most{kLongestAnswerHead, longest_body_});
      }
    }
    std::size_t used = 0;
    if (is_event_) {
      used = TakeEvent(rest_);
      events.append(rest_, 0, used);
    } else {
      PERSEUS_ASSIGN_OR_RETURN(used, TakeAnswer(rest_));
    }
    if (used == 0) break;  // The rest of a header comes later.
    rest_.erase(0, used);
  }
  return events;
}

std::optional<Result<Response>> ClientStream::Send(const TextOf& text_of,
                                                   std::chrono::milliseconds timeout) {
  const auto until = ClientConnection::Clock::now() + timeout;
  std::unique_lock lock(mutex_);
  if (connection_ == nullptr || is_broken_) return std::nullopt;
  const auto text = text_of(server_);
  if (!text) return Fail(text);
  received_.reset();
  is_waiting_ = true;
  const auto written = connection_->Write(*text, {until, nullptr});
  std::string failure = written.failure;
  if (failure.empty()) {
    const bool has_ended =
        changed_.wait_until(lock, until, [this] { return received_ || connection_ == nullptr; });
    if (received_) return *std::exchange(received_, std::nullopt);
    failure = has_ended ? "it closed the connection" : "timed out";
  }
  is_waiting_ = false;
  is_broken_ = true;
  if (written.bytes == 0) return std::nullopt;
  return FailAs(ErrorKind::kSystem, "{} did not answer: {} (it may have processed the request)",
                server_.text, failure);
}

}  // namespace perseus::http
