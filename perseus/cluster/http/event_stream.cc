#include "perseus/cluster/http/event_stream.h"

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <string_view>
#include <utility>

#include "perseus/cluster/http/response_text.h"

namespace perseus::http {
namespace {

using boost::system::error_code;

constexpr std::size_t kEventStreamMostTexts = 64;  // In one write.
constexpr std::chrono::milliseconds kLongestUnacknowledged{15'000};

}  // namespace

EventStream::EventStream(std::shared_ptr<Connection> connection)
    : state_(connection->shared_state()), connection_(std::move(connection)), beat_(state_->loop) {
  state_->streams.insert(this);
}

EventStream::~EventStream() { state_->streams.erase(this); }

void EventStream::Start() {
  connection_->NeverExpire();
  connection_->FailWithoutAcknowledgement(kLongestUnacknowledged);
  Send(std::make_shared<const std::string>(StreamHead()));
  Watch();
  Beat();
}

void EventStream::Send(std::shared_ptr<const std::string> text) {
  if (!is_open_ || text->empty()) return;
  const std::size_t most = state_->options.limits.stream_bytes;
  // First write as much as possible: the client had no chance to read during a burst within one
  // turn of the loop.
  if (unwritten_bytes_ + text->size() > most && !WriteSome()) return;
  if (unwritten_bytes_ + text->size() > most) return Drop(Reason::kSlow);
  unwritten_bytes_ += text->size();
  unwritten_.push_back(std::move(text));
  SchedulePump();
}

// One write sends all texts of one turn of the loop.
void EventStream::SchedulePump() {
  if (is_pumping_) return;
  is_pumping_ = true;
  asio::post(state_->loop, [self = shared_from_this()] { self->Pump(); });
}

void EventStream::Pump() {
  if (!WriteSome()) return;
  if (unwritten_.empty()) {
    is_pumping_ = false;
    if (!is_open_) Finish();
    return;
  }
  connection_->WhenReady(Link::Status::kWantWrite,
                         [self = shared_from_this()](const error_code& error) {
                           error ? self->Drop(Reason::kGone) : self->Pump();
                         });
}

bool EventStream::WriteSome() {
  if (!connection_) return false;
  while (!unwritten_.empty()) {
    std::array<std::string_view, kEventStreamMostTexts> texts;
    const std::size_t count = std::min(unwritten_.size(), kEventStreamMostTexts);
    for (std::size_t i = 0; i < count; ++i) texts[i] = *unwritten_[i];
    texts[0].remove_prefix(first_taken_);
    const Link::Moved moved = connection_->link().Write(std::span(texts.data(), count));
    if (moved.status == Link::Status::kMoved) {
      Advance(moved.bytes);
    } else if (moved.status == Link::Status::kWantWrite ||
               moved.status == Link::Status::kWantRead) {
      return true;
    } else {
      Drop(Reason::kGone);
      return false;
    }
  }
  return true;
}

void EventStream::Advance(std::size_t bytes) {
  took_some_ = true;
  unwritten_bytes_ -= bytes;
  first_taken_ += bytes;
  auto done = unwritten_.begin();
  while (done != unwritten_.end() && first_taken_ >= (*done)->size()) {
    first_taken_ -= (*done++)->size();
  }
  unwritten_.erase(unwritten_.begin(), done);
}

// Waits for the end of the stream. A client sends nothing on a stream, so any input ends it.
void EventStream::Watch() {
  connection_->WhenReady(
      Link::Status::kWantRead, [self = shared_from_this()](const error_code& error) {
        if (error || !self->connection_) return self->Drop(Reason::kGone);
        std::array<char, 256> ignored;
        const Link::Moved moved = self->connection_->link().Read(ignored);
        const bool is_alive =
            moved.status == Link::Status::kWantRead || moved.status == Link::Status::kWantWrite;
        is_alive ? self->Watch() : self->Drop(Reason::kGone);
      });
}

void EventStream::Beat() {
  beat_.expires_after(state_->options.limits.stream_beat);
  beat_.async_wait([weak = weak_from_this()](const error_code& error) {
    const auto self = weak.lock();
    if (error || !self || !self->connection_) return;
    if (!self->unwritten_.empty() && !std::exchange(self->took_some_, false)) {
      return self->Drop(Reason::kSlow);
    }
    self->took_some_ = false;
    static const auto beat = std::make_shared<const std::string>(": \n\n");
    self->Send(beat);
    self->Beat();
  });
}

void EventStream::Close() {
  if (!std::exchange(is_open_, false)) return;
  NotifyClosed();
  SchedulePump();
}

void EventStream::Drop(Reason reason) {
  if (!connection_) return;
  if (reason == Reason::kSlow) ++state_->dropped_streams;
  if (std::exchange(is_open_, false)) NotifyClosed();
  Finish();
}

// Releases the connection and the memory, even if a handler still holds the stream.
void EventStream::Finish() {
  connection_->link().EndWriting();
  connection_->Close();
  connection_.reset();
  unwritten_ = {};
  unwritten_bytes_ = 0;
  beat_.cancel();
  state_->streams.erase(this);
}

void EventStream::OnClose(std::function<void()> closed) {
  closed_ = std::move(closed);
  if (!is_open_) NotifyClosed();
}

void EventStream::NotifyClosed() {
  if (closed_) asio::post(state_->loop, std::exchange(closed_, nullptr));
}

}  // namespace perseus::http
