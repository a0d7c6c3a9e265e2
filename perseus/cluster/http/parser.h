// Parses requests and responses with the parser of Boost.Beast. Only parser.cc includes Beast.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "perseus/cluster/http/message.h"

namespace perseus::http {

// Parses one request.
class RequestParser {
 public:
  struct Most {
    std::size_t header_bytes = 0;
    std::size_t body_bytes = 0;
  };
  explicit RequestParser(Most most);
  RequestParser(RequestParser&&) = delete;
  ~RequestParser();

  // Parses `bytes`, and returns how many of them it has used. The caller passes the other bytes
  // again, together with the bytes that follow. Stops after the header, so that the caller can
  // check the header before the body is read. Also stops after the request. Do not call Put() after
  // a failure.
  std::size_t Put(std::string_view bytes);
  bool HasHeader() const;
  bool IsDone() const;
  // Changes Most::body_bytes. Call it after HasHeader() and before the next Put(). Checks the
  // length in the header at once.
  void LimitBody(std::size_t bytes);
  // Why parsing failed, with the status 400, 413, 431, 501 or 505. Empty if parsing did not fail.
  const std::optional<Problem>& failure() const;

  struct Head {
    std::string method;
    std::string target;
  };
  // The parts that have arrived.
  const Head& head() const;
  Fields& fields();
  std::set<std::string, std::less<>>& repeated();  // The names of fields that occur twice.
  std::string& body();
  // Call these functions after HasHeader().
  bool KeepsAlive() const;
  bool ExpectsContinue() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

enum class Expected { kBody, kNoBody };  // kNoBody: the answer to HEAD has no body.

// Parses one response. Skips the 1xx responses before the final response.
class ResponseParser {
 public:
  ResponseParser(Expected expected, RequestParser::Most most);
  ResponseParser(ResponseParser&&) = delete;
  ~ResponseParser();

  // The same as in RequestParser.
  std::size_t Put(std::string_view bytes);
  // Handles the end of the connection, which also ends a response without a length.
  void End();
  bool HasHeader() const;
  bool IsDone() const;
  bool KeepsAlive() const;
  const std::string& failure() const;  // Why parsing failed. Empty if parsing did not fail.

  int status() const;
  Fields& fields();
  // The bytes of the body that have arrived since the caller last cleared this string.
  std::string& body();

 private:
  class Impl;
  Expected expected_;
  RequestParser::Most most_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace perseus::http
