// Passes events of the server from the thread that listens to the thread that works, and the
// position (the last event id) in the other direction.
//
// The mailbox holds a limited number of bytes. While it is full, Put waits, so the node reads no
// further events. Then the server's buffer fills, and the server closes the stream. So a server
// that sends faster than the node can work does not fill the memory of the node.
//
// Thread safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/mutex.h"
#include "perseus/cluster/http/message.h"

namespace perseus::node {

class Mailbox {
 public:
  explicit Mailbox(std::size_t most_bytes = 64U << 20U) : most_bytes_(most_bytes) {}

  // Waits while the mailbox is full. An empty mailbox takes an event of any size. After Close, does
  // nothing.
  void Put(const http::Event& event) PERSEUS_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      has_room_.wait(mutex_, [&]() PERSEUS_REQUIRES(mutex_) {
        return is_closed_ || events_.empty() || bytes_ + BytesOf(event) <= most_bytes_;
      });
      if (is_closed_) return;
      bytes_ += BytesOf(event);
      events_.push_back(event);
    }
    count_.fetch_add(1);
    WakeAll(count_);
  }
  std::deque<http::Event> TakeAll() PERSEUS_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    bytes_ = 0;
    has_room_.notify_all();
    return std::exchange(events_, {});
  }
  // Ends Put.
  void Close() PERSEUS_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    is_closed_ = true;
    has_room_.notify_all();
  }
  // Counts the events. Changes when an event arrives.
  const std::atomic<std::uint32_t>& count() const { return count_; }

  void SetPosition(std::string position) PERSEUS_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    position_ = std::move(position);
  }
  std::string position() PERSEUS_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return position_;
  }

  std::atomic<bool> is_name_lost = false;  // Another process has the node's name.
  // The server refused the stream for another reason, such as the token.
  std::atomic<bool> is_refused = false;

 private:
  static std::size_t BytesOf(const http::Event& event) {
    return sizeof(event) + event.name.size() + event.id.size() + event.data.size();
  }

  const std::size_t most_bytes_;
  Mutex mutex_;
  std::condition_variable_any has_room_;
  std::deque<http::Event> events_ PERSEUS_GUARDED_BY(mutex_);
  std::size_t bytes_ PERSEUS_GUARDED_BY(mutex_) = 0;  // The sum over events_.
  bool is_closed_ PERSEUS_GUARDED_BY(mutex_) = false;
  std::string position_ PERSEUS_GUARDED_BY(mutex_);
  std::atomic<std::uint32_t> count_ = 0;
};

}  // namespace perseus::node
