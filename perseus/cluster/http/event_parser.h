// Parses the bytes of an event stream (text/event-stream in the HTML standard).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/http/message.h"

namespace perseus::http {

class EventParser {
 public:
  explicit EventParser(std::string last_id = "") : last_id_(std::move(last_id)) {}

  // Takes bytes in pieces of any size. Fails (kSystem) if an event is longer than 64 MB, because
  // such an event may never end.
  Result<std::vector<Event>> Put(std::string_view bytes);

  // The id of the last complete event. The next connection continues after this event.
  const std::string& last_id() const { return last_id_; }

 private:
  void TakeLine(std::string_view line, std::vector<Event>& events);
  void TakeField(std::string_view name, std::string_view value);

  std::string last_id_;
  std::string line_;            // The received part of a line.
  bool skips_newline_ = false;  // The last byte was a carriage return. A newline that follows
                                // belongs to the same line end.
  bool is_at_start_ = true;
  bool has_data_ = false;
  bool has_id_ = false;
  Event event_;
};

}  // namespace perseus::http
