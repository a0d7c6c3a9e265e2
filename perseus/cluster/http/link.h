// A connected, non-blocking socket with or without TLS. Each call moves as many bytes as it can,
// and returns what to wait for. The server waits with coroutines, the client with poll().
//
// This class does not use asio::ssl. Each asio::ssl stream has buffers of about 70 kB, even when
// the stream is idle, and a server has thousands of idle streams. When OpenSSL works directly on
// the socket, it releases the buffers of an idle connection.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "perseus/base/result.h"
#include "perseus/cluster/http/tls.h"

struct ssl_st;  // OpenSSL's SSL.

namespace perseus::http {

class Link {
 public:
  enum class Status { kMoved, kWantRead, kWantWrite, kClosed, kFailed };
  struct Moved {
    Status status = Status::kMoved;
    std::size_t bytes = 0;  // For kMoved, more than 0.
  };

  // The caller owns `socket` and keeps it open. Without `tls`, the connection is not encrypted.
  static Link OfServer(int socket, const TlsContext& tls);
  // `host` is the name that the certificate must have.
  static Link OfClient(int socket, const TlsContext& tls, const std::string& host);

  // Call this first, until it returns kMoved. Does nothing without TLS.
  Moved Handshake();
  Moved Read(std::span<char> into);
  // The next call must begin with the bytes that were not written.
  Moved Write(std::span<const std::string_view> texts);
  // Call this before the socket is closed. Afterwards all calls fail.
  void Detach();
  // Announces to the other side that no more bytes follow. Does not wait. Bytes that are read
  // afterwards are not decrypted, so ignore them.
  void EndWriting();

  // Returns why the last call failed, such as "the certificate is for another host". For a client,
  // the error also has the remedy, if the remedy is known. If the last call did not fail, `what` is
  // empty.
  const Error& failure() const { return failure_; }
  // The common name in the verified certificate of the other side. Empty if it has no certificate.
  std::string PeerName() const;

 private:
  struct FreeTls {
    void operator()(ssl_st* tls) const;
  };
  explicit Link(int socket) : socket_(socket) {}
  void Secure(const TlsContext& context);
  Moved TlsResult(int result);
  Moved SocketResult(ssize_t result);

  int socket_;
  std::unique_ptr<ssl_st, FreeTls> tls_;
  Error failure_{.what = {}, .kind = ErrorKind::kSystem};
};

}  // namespace perseus::http
