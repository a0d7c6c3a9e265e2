#include "perseus/cluster/http/parser.h"

#include <fmt/core.h>

#include <boost/beast/http/basic_parser.hpp>
#include <limits>

namespace perseus::http {
namespace {

namespace beast = boost::beast::http;
using boost::beast::error_code;
using boost::beast::string_view;
using BeastError = boost::beast::http::error;

// The size of the shortest chunk, "0\r\n\r\n". If Beast's parser receives less of a chunk first, it
// fails an assertion when it receives the rest.
constexpr std::size_t kShortestChunk = 5;

std::string Text(string_view text) { return std::string(text.data(), text.size()); }

std::string LowerCase(string_view text) {
  std::string lower = Text(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// The common part of the parsers of requests and responses.
template <bool kIsRequest>
class Collector : public beast::basic_parser<kIsRequest> {
 public:
  explicit Collector(RequestParser::Most limits) : most(limits) {
    // Beast's own limit only counts bytes that it has not consumed. It would not limit a header
    // that arrives in small pieces, so CheckSize() counts.
    this->header_limit(std::numeric_limits<std::uint32_t>::max());
    this->body_limit(limits.body_bytes);
  }

  // The same as RequestParser::Put. Do not call it again after an error.
  std::size_t Put(std::string_view bytes, error_code& error) {
    const bool had_header = this->is_header_done();
    std::size_t used = 0;
    while (used < bytes.size() && !this->is_done()) {
      const std::string_view rest = bytes.substr(used);
      if (AwaitsChunk() && rest.size() < kShortestChunk) break;
      const std::size_t now = this->put({rest.data(), rest.size()}, error);
      used += now;
      if (!had_header) header_bytes_ += now;
      if (error || now == 0 || this->is_header_done() != had_header) break;
    }
    if (error == BeastError::need_more) {
      error = {};
      CheckSize(bytes.size() - used, error);
    } else if (!error && !had_header && header_bytes_ > most.header_bytes) {
      error = BeastError::header_limit;
    }
    return used;
  }

  RequestParser::Most most;
  Fields fields;
  std::string body;
  std::set<std::string, std::less<>> repeated;

 private:
  bool AwaitsChunk() const { return this->is_header_done() && this->chunked() && chunk_left_ == 0; }

  // `waiting` is the number of unconsumed bytes of a header, of the header of a chunk, or of a
  // trailer.
  void CheckSize(std::size_t waiting, error_code& error) const {
    const std::size_t size = waiting + (this->is_header_done() ? 0 : header_bytes_);
    if (size > most.header_bytes) error = BeastError::header_limit;
  }

  void on_field_impl(beast::field, string_view name, string_view value, error_code&) override {
    // Ignore trailers: the header alone decides how a message is handled.
    if (this->is_header_done()) return;
    const auto [field, is_new] = fields.emplace(LowerCase(name), Text(value));
    if (is_new) return;
    repeated.insert(field->first);
    field->second += ", " + Text(value);
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(string_view text, error_code&) override {
    body.append(text.data(), text.size());
    return text.size();
  }
  void on_chunk_header_impl(std::uint64_t size, string_view, error_code&) override {
    chunk_left_ = size;
  }
  std::size_t on_chunk_body_impl(std::uint64_t left, string_view text, error_code&) override {
    body.append(text.data(), text.size());
    chunk_left_ = left - text.size();
    return text.size();
  }
  void on_finish_impl(error_code&) override {}

  std::size_t header_bytes_ = 0;
  std::uint64_t chunk_left_ = 0;
};

Problem ProblemOf(const error_code& error, RequestParser::Most most) {
  if (error == BeastError::header_limit) {
    return {431, "The header is too large",
            fmt::format("It has more than {} bytes", most.header_bytes), "",
            "send fewer or shorter fields"};
  }
  if (error == BeastError::body_limit) {
    return {413, "The body is too large", fmt::format("It has more than {} bytes", most.body_bytes),
            "", "send less; /openapi.yaml has the limit of each route"};
  }
  return {400, "Not an HTTP request", "The request is malformed: " + error.message(), "",
          "send a request according to RFC 9112"};
}

// Whether the first line is a request line of another HTTP version, such as "PRI * HTTP/2.0".
bool HasOtherVersion(std::string_view bytes) {
  constexpr std::string_view kMark = " HTTP/";
  const std::string_view line = bytes.substr(0, bytes.find_first_of("\r\n"));
  const std::size_t mark = line.rfind(kMark);
  return mark != std::string_view::npos && !line.substr(mark + kMark.size()).starts_with("1.");
}

}  // namespace

class RequestParser::Impl : public Collector<true> {
 public:
  explicit Impl(Most limits) : Collector<true>(limits) {}

  RequestParser::Head head;
  std::optional<Problem> failure;
  bool is_http_1_0 = false;

  // Checks what Beast does not check.
  std::optional<Problem> HeaderProblem() const {
    const auto encoding = fields.find("transfer-encoding");
    if (encoding != fields.end()) {
      if (!boost::beast::iequals(encoding->second, "chunked")) {
        return Problem{501, "Unknown transfer encoding", "The only transfer encoding is chunked",
                       "", "send the body in chunks or with its length"};
      }
      if (is_http_1_0) return Malformed("HTTP/1.0 has no chunks");
    }
    if (!is_http_1_0 && fields.count("host") == 0) return Malformed("it has no host");
    if (repeated.contains("host")) return Malformed("it has several hosts");
    return std::nullopt;
  }

 private:
  static Problem Malformed(std::string_view why) {
    return {400, "Not an HTTP request", fmt::format("The request is malformed: {}", why), "",
            "send a request according to RFC 9112"};
  }

  void on_request_impl(beast::verb, string_view method, string_view target, int version,
                       error_code&) override {
    head.method = Text(method);
    head.target = Text(target);
    is_http_1_0 = version == 10;
  }
  void on_response_impl(int, string_view, int, error_code&) override {}
};

RequestParser::RequestParser(Most most) : impl_(std::make_unique<Impl>(most)) {}
RequestParser::~RequestParser() = default;

std::size_t RequestParser::Put(std::string_view bytes) {
  const bool had_header = impl_->is_header_done();
  error_code error;
  const std::size_t used = impl_->Put(bytes, error);
  if (error == BeastError::bad_version && HasOtherVersion(bytes.substr(used))) {
    impl_->failure = {505, "Not HTTP/1.1", "The request has another HTTP version", "",
                      "use HTTP/1.1"};
  } else if (error) {
    impl_->failure = ProblemOf(error, impl_->most);
  } else if (!had_header && impl_->is_header_done()) {
    impl_->failure = impl_->HeaderProblem();
  }
  return used;
}

void RequestParser::LimitBody(std::size_t bytes) {
  impl_->most.body_bytes = bytes;
  impl_->body_limit(bytes);
  const auto announced = impl_->content_length();
  if (announced && *announced > bytes) {
    impl_->failure = ProblemOf(BeastError::body_limit, impl_->most);
  }
}

bool RequestParser::HasHeader() const { return impl_->is_header_done(); }
bool RequestParser::IsDone() const { return impl_->is_done(); }
const std::optional<Problem>& RequestParser::failure() const { return impl_->failure; }
const RequestParser::Head& RequestParser::head() const { return impl_->head; }
Fields& RequestParser::fields() { return impl_->fields; }
std::set<std::string, std::less<>>& RequestParser::repeated() { return impl_->repeated; }
std::string& RequestParser::body() { return impl_->body; }
bool RequestParser::KeepsAlive() const { return impl_->keep_alive(); }

bool RequestParser::ExpectsContinue() const {
  const auto expect = impl_->fields.find("expect");
  return !impl_->is_http_1_0 && expect != impl_->fields.end() &&
         boost::beast::iequals(expect->second, "100-continue");
}

class ResponseParser::Impl : public Collector<false> {
 public:
  Impl(Expected expected, RequestParser::Most limits) : Collector<false>(limits) {
    skip(expected == Expected::kNoBody);
  }

  int status = 0;
  std::string failure;

 private:
  void on_request_impl(beast::verb, string_view, string_view, int, error_code&) override {}
  void on_response_impl(int code, string_view, int, error_code&) override { status = code; }
};

ResponseParser::ResponseParser(Expected expected, RequestParser::Most most)
    : expected_(expected), most_(most), impl_(std::make_unique<Impl>(expected, most)) {}
ResponseParser::~ResponseParser() = default;

std::size_t ResponseParser::Put(std::string_view bytes) {
  error_code error;
  const std::size_t used = impl_->Put(bytes, error);
  if (error) impl_->failure = error.message();
  // 100 Continue and other 1xx responses come before the answer.
  if (!error && impl_->is_done() && impl_->status / 100 == 1) {
    impl_ = std::make_unique<Impl>(expected_, most_);
  }
  return used;
}

void ResponseParser::End() {
  error_code error = BeastError::partial_message;
  if (impl_->got_some()) impl_->put_eof(error);
  if (error) impl_->failure = error.message();
}

bool ResponseParser::HasHeader() const { return impl_->is_header_done(); }
bool ResponseParser::IsDone() const { return impl_->is_done(); }
bool ResponseParser::KeepsAlive() const { return impl_->keep_alive(); }
const std::string& ResponseParser::failure() const { return impl_->failure; }
int ResponseParser::status() const { return impl_->status; }
Fields& ResponseParser::fields() { return impl_->fields; }
std::string& ResponseParser::body() { return impl_->body; }

}  // namespace perseus::http
