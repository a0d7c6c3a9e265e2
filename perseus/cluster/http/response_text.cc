#include "perseus/cluster/http/response_text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <boost/beast/http/status.hpp>
#include <ctime>

namespace perseus::http {
namespace {

// Two statuses have new names since RFC 9110.
std::string_view Reason(int status) {
  namespace beast = boost::beast::http;
  if (status == 413) return "Content Too Large";
  if (status == 422) return "Unprocessable Content";
  const auto known = beast::int_to_status(static_cast<unsigned>(status));
  return known == beast::status::unknown ? "" : beast::obsolete_reason(known);
}

// Removes control characters. Otherwise a name or value that a handler copied from a request could
// begin a new header line.
std::string WithoutControlCharacters(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return line;
}

// Formats the date for HTTP, independently of the locale.
std::string HttpDate(std::time_t now) {
  constexpr std::string_view kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::string_view kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                          "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::tm utc = fmt::gmtime(now);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[utc.tm_wday], utc.tm_mday,
                     kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::string StatusLine(int status) {
  return fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", status, Reason(status),
                     HttpDate(std::time(nullptr)));
}

}  // namespace

bool HasBody(int status) { return status / 100 != 1 && status != 204 && status != 304; }

std::string ResponseHead(const Response& response, Afterwards afterwards) {
  std::string head = StatusLine(response.status);
  if (HasBody(response.status)) {
    head += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n",
                        WithoutControlCharacters(response.content_type), response.body.size());
  }
  for (const auto& [name, value] : response.fields) {
    head += WithoutControlCharacters(name) + ": " + WithoutControlCharacters(value) + "\r\n";
  }
  if (afterwards == Afterwards::kClose) head += "Connection: close\r\n";
  return head + "\r\n";
}

std::string StreamHead() {
  // Because of the last field, a proxy forwards each event without waiting for more output.
  return StatusLine(200) +
         "Content-Type: text/event-stream\r\nCache-Control: no-cache\r\nConnection: close\r\n"
         "X-Accel-Buffering: no\r\n\r\n";
}

}  // namespace perseus::http
