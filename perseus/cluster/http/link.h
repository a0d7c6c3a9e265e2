// A connected, non-blocking socket, with TLS or without: moves what can be moved now, and says what
// has to be waited for. The server waits with coroutines, the client with poll().
//
// Why not asio::ssl: its streams hold some 70 kB of buffers each, idle or not, and a server has
// thousands of idle ones. OpenSSL on the socket itself gives its buffers back.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "perseus/cluster/http/tls.h"

struct ssl_st;  // OpenSSL's SSL.

namespace perseus::http {

class Link {
 public:
  enum class Status { kMoved, kWantRead, kWantWrite, kClosed, kFailed };
  struct Moved {
    Status status = Status::kMoved;
    std::size_t bytes = 0;  // Of kMoved, more than 0.
  };

  // `socket` stays the caller's, and open while this is used. Without `tls`, plain.
  static Link OfServer(int socket, const TlsContext& tls);
  // `host`: whose certificate it has to be.
  static Link OfClient(int socket, const TlsContext& tls, const std::string& host);

  // Before anything else; kMoved: done. Nothing to do where it is plain.
  Moved Handshake();
  Moved Read(std::span<char> into);
  // What follows has to begin with what was left unwritten.
  Moved Write(std::span<const std::string_view> texts);
  // The socket is about to be closed: from now on everything fails.
  void Detach();
  // Tells the other side that nothing follows, as far as that goes without waiting. What is read
  // afterwards is good only for being ignored: nobody decrypts it.
  void EndWriting();

  // Why the last one failed: "the certificate is of another host"; of a client also what to do
  // about it, in parentheses, where that is known.
  const std::string& failure() const { return failure_; }
  // Common name of the other side's certificate, which has been verified; empty if it has none.
  std::string PeerName() const;
  bool is_tls() const { return tls_ != nullptr; }

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
  std::string failure_;
};

}  // namespace perseus::http
