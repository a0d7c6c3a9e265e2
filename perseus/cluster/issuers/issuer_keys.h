// The keys of one issuer, which a thread reads again from time to time.
//
//   IssuerKeys keys(KeyReader(settings), {}, [] { … wake those who wait … });
//   auto set = keys.Newest();            null: never read
//   if (!set->HasKeyFor(token) && keys.ReadAgain()) … wait for the call …
//
// Keys are read
// - at once, and then every `apart`, so that a key which the issuer withdrew ends;
// - on ReadSoon (the operator asks for it);
// - on ReadAgain (a token has an unknown key id), but at most once in `least_apart`, however many
//   tokens have unknown keys;
// - after a failure, again with growing pauses, up to `apart`.
// After a failure the last keys stay in force. Only this thread waits for the issuer.
//
// Thread safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "perseus/base/result.h"
#include "perseus/cluster/issuers/key_set.h"
#include "perseus/cluster/issuers/settings.h"

namespace perseus::issuers {

class IssuerKeys {
 public:
  using Read = std::function<Result<KeySet>()>;
  struct Pace {
    std::chrono::milliseconds apart{600'000};
    std::chrono::milliseconds least_apart{5'000};
    std::chrono::milliseconds first_pause{1'000};
  };
  // `finished` is called on the thread after each attempt, with the error if it failed.
  using Finished = std::function<void(const Error*)>;
  IssuerKeys(Read read, const Pace& pace, Finished finished);
  ~IssuerKeys();  // Waits for a running request to the issuer.
  IssuerKeys(const IssuerKeys&) = delete;
  IssuerKeys& operator=(const IssuerKeys&) = delete;

  std::shared_ptr<const KeySet> Newest() const;
  // Whether an attempt runs or will run at once, so that waiting for `finished` makes sense.
  bool ReadAgain();
  // An attempt begins after this call, once the last one is `least_apart` ago.
  void ReadSoon();

 private:
  using Clock = std::chrono::steady_clock;
  void Run(const std::stop_token& ends);
  // Returns when to read next.
  Clock::time_point ReadOnce(std::chrono::milliseconds& pause);

  const Read read_;
  const Pace pace_;
  const Finished finished_;
  mutable std::mutex mutex_;
  std::condition_variable_any wakes_;
  std::shared_ptr<const KeySet> newest_;
  bool is_requested_ = false;
  bool is_due_soon_ = false;
  bool is_reading_ = true;  // The first attempt begins with the thread.
  Clock::time_point last_{};
  std::jthread thread_;  // Last, so that it ends first.
};

// Reads the keys of this issuer, by discovery unless it has a keys_url.
IssuerKeys::Read KeyReader(const IssuerSettings& settings);
// Whether both settings read the same keys in the same way.
bool HaveSameKeys(const IssuerSettings& one, const IssuerSettings& other);
// Fails (kInput) if a file that reading the keys needs is absent or wrong. Asks nobody.
Result<void> CheckFiles(const IssuerSettings& settings);

}  // namespace perseus::issuers
