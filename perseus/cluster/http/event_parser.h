// An event stream's bytes into events, as the HTML standard has it (text/event-stream).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/http/message.h"

namespace perseus::http {

class EventParser {
 public:
  explicit EventParser(std::string last_id = "") : last_id_(std::move(last_id)) {}

  // Takes bytes as they come, in pieces of any size. Fails (kSystem) if an event is longer than
  // 64 MB: it would not end either.
  Result<std::vector<Event>> Put(std::string_view bytes);

  // What to begin after the next time: the id that was given last.
  const std::string& last_id() const { return last_id_; }

 private:
  void TakeLine(std::string_view line, std::vector<Event>& events);
  void TakeField(std::string_view name, std::string_view value);

  std::string last_id_;
  std::string line_;            // What came of it.
  bool skips_newline_ = false;  // A carriage return came last: a newline now belongs to it.
  bool is_at_start_ = true;
  bool has_data_ = false;
  bool has_id_ = false;
  Event event_;
};

}  // namespace perseus::http
