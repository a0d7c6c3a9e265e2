// Bytes into requests and responses. Beast's parser does it, and only parser.cc knows.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "perseus/cluster/http/message.h"

namespace perseus::http {

// One request.
class RequestParser {
 public:
  struct Most {
    std::size_t header_bytes = 0;
    std::size_t body_bytes = 0;
  };
  explicit RequestParser(Most most);
  RequestParser(RequestParser&&) = delete;
  ~RequestParser();

  // Returns how many of the bytes are done with: the rest is given again, with what comes after it.
  // Stops after the header, so that it can be looked at before the body is taken, and after the
  // request. Not after failure().
  std::size_t Put(std::string_view bytes);
  bool HasHeader() const;
  bool IsDone() const;
  // From HasHeader() on, before more is put: another Most::body_bytes, to which what the header
  // announces is held at once.
  void LimitBody(std::size_t bytes);
  // 400, 413, 431, 501, 505.
  const std::optional<Problem>& failure() const;

  struct Head {
    std::string method;
    std::string target;
  };
  // As far as they came.
  const Head& head() const;
  Fields& fields();
  std::string& body();
  // From HasHeader() on:
  bool KeepsAlive() const;
  bool ExpectsContinue() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

enum class Expected { kBody, kNoBody };  // No body: the answer to HEAD.

// One response; those of 1xx before it are passed over.
class ResponseParser {
 public:
  ResponseParser(Expected expected, RequestParser::Most most);
  ResponseParser(ResponseParser&&) = delete;
  ~ResponseParser();

  // As of RequestParser.
  std::size_t Put(std::string_view bytes);
  // The connection was closed: the response's end where nothing else marks it.
  void End();
  bool HasHeader() const;
  bool IsDone() const;
  bool KeepsAlive() const;
  const std::string& failure() const;  // Empty: none.

  int status() const;
  Fields& fields();
  // What came of it since it was last cleared.
  std::string& body();

 private:
  class Impl;
  Expected expected_;
  RequestParser::Most most_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace perseus::http
