#include "perseus/cluster/http/link.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>

namespace perseus::http {
namespace {

constexpr std::size_t kLinkMostTexts = 64;        // In one call.
constexpr std::size_t kLongestRecord = 16 << 10;  // Bytes of a TLS record.

// Returns what the user of a client can do about a failed handshake, or "" if this is unknown.
std::string_view Remedy(long verified, unsigned long code) {
  switch (verified) {
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      return "name the file of its authority: `ca`";
    default:
      break;
  }
  if (ERR_GET_LIB(code) != ERR_LIB_SSL) return "";
  switch (ERR_GET_REASON(code)) {
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return "name a client certificate: `cert` and `key`";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
      return "with `cert` and `key`, name a certificate of an authority that the server trusts";
    case SSL_R_WRONG_VERSION_NUMBER:
      return "if the server uses plain HTTP, write http://";
    default:
      return "";
  }
}

std::string SystemFailure() { return std::generic_category().message(errno); }

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// This file has its own BIO (OpenSSL's interface to a socket). With OpenSSL's own socket BIO, a
// write to a closed connection would cause SIGPIPE.
int SocketOf(BIO* bio) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
}

int BioWrite(BIO* bio, const char* data, int size) {
  const ssize_t sent = ::send(SocketOf(bio), data, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  BIO_clear_retry_flags(bio);
  if (sent < 0 && WouldBlock()) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int BioRead(BIO* bio, char* data, int size) {
  const ssize_t received = ::recv(SocketOf(bio), data, static_cast<std::size_t>(size), 0);
  BIO_clear_retry_flags(bio);
  if (received < 0 && WouldBlock()) BIO_set_retry_read(bio);
  return static_cast<int>(received);
}

long BioControl(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO_METHOD* SocketBio() {
  static const std::unique_ptr<BIO_METHOD, decltype(&BIO_meth_free)> method = [] {
    BIO_METHOD* bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    if (bio_method == nullptr) throw std::bad_alloc();
    BIO_meth_set_write(bio_method, BioWrite);
    BIO_meth_set_read(bio_method, BioRead);
    BIO_meth_set_ctrl(bio_method, BioControl);
    return std::unique_ptr<BIO_METHOD, decltype(&BIO_meth_free)>(bio_method, BIO_meth_free);
  }();
  return method.get();
}

// Copies as many texts as fit into one record, because TLS encrypts and sends each record
// separately.
std::size_t Gather(std::span<const std::string_view> texts, std::span<char> into) {
  std::size_t size = 0;
  for (const std::string_view text : texts) {
    const std::size_t taken = std::min(text.size(), into.size() - size);
    std::copy_n(text.data(), taken, into.data() + size);
    size += taken;
    if (size == into.size()) break;
  }
  return size;
}

}  // namespace

void Link::FreeTls::operator()(ssl_st* tls) const { SSL_free(tls); }

void Link::Secure(const TlsContext& context) {
  tls_.reset(SSL_new(context.get()));
  BIO* bio = tls_ ? BIO_new(SocketBio()) : nullptr;
  if (bio == nullptr) throw std::bad_alloc();
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket_)));
  BIO_set_init(bio, 1);
  SSL_set_bio(tls_.get(), bio, bio);
}

Link Link::OfServer(int socket, const TlsContext& tls) {
  Link link(socket);
  if (!tls) return link;
  link.Secure(tls);
  SSL_set_accept_state(link.tls_.get());
  return link;
}

Link Link::OfClient(int socket, const TlsContext& tls, const std::string& host) {
  Link link(socket);
  if (!tls) return link;
  link.Secure(tls);
  SSL* ssl = link.tls_.get();
  SSL_set_connect_state(ssl);
  // If `host` is an IP address, the certificate must contain this address. An IP address is not
  // sent as a server name.
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) != 1) {
    ERR_clear_error();
    if (SSL_set1_host(ssl, host.c_str()) != 1 || SSL_set_tlsext_host_name(ssl, host.c_str()) != 1) {
      throw std::bad_alloc();
    }
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  }
  return link;
}

Link::Moved Link::SocketResult(ssize_t result) {
  if (result > 0) return {Status::kMoved, static_cast<std::size_t>(result)};
  if (result == 0) return {Status::kClosed};
  const bool is_closed = errno == ECONNRESET || errno == EPIPE;
  failure_.what = SystemFailure();
  return {is_closed ? Status::kClosed : Status::kFailed};
}

Link::Moved Link::TlsResult(int result) {
  if (result > 0) return {Status::kMoved, static_cast<std::size_t>(result)};
  const int system_error = errno;
  switch (SSL_get_error(tls_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return {Status::kWantRead};
    case SSL_ERROR_WANT_WRITE:
      return {Status::kWantWrite};
    case SSL_ERROR_ZERO_RETURN:
      return {Status::kClosed};
    case SSL_ERROR_SYSCALL:
      if (result < 0) failure_.what = std::generic_category().message(system_error);
      return {Status::kClosed};
    default:
      break;
  }
  const long verified = SSL_get_verify_result(tls_.get());
  const unsigned long code = ERR_peek_last_error();
  failure_.what = TlsFailure();
  if (verified != X509_V_OK) {
    failure_.what =
        std::string("its certificate is invalid: ") + X509_verify_cert_error_string(verified);
  }
  if (SSL_is_server(tls_.get()) == 0) failure_.remedy = Remedy(verified, code);
  return {Status::kFailed};
}

Link::Moved Link::Handshake() {
  if (!tls_) return {};
  ERR_clear_error();
  return TlsResult(SSL_do_handshake(tls_.get()));
}

Link::Moved Link::Read(std::span<char> into) {
  if (tls_) {
    ERR_clear_error();
    return TlsResult(SSL_read(tls_.get(), into.data(), static_cast<int>(into.size())));
  }
  const ssize_t received = ::recv(socket_, into.data(), into.size(), 0);
  if (received < 0 && WouldBlock()) return {Status::kWantRead};
  return SocketResult(received);
}

Link::Moved Link::Write(std::span<const std::string_view> texts) {
  if (tls_) {
    std::array<char, kLongestRecord> record;
    const std::size_t size = Gather(texts, record);
    if (size == 0) return {};
    ERR_clear_error();
    return TlsResult(SSL_write(tls_.get(), record.data(), static_cast<int>(size)));
  }
  std::array<iovec, kLinkMostTexts> parts;
  std::size_t count = 0;
  std::size_t size = 0;
  for (const std::string_view text : texts.first(std::min(texts.size(), kLinkMostTexts))) {
    size += text.size();
    parts[count++] = {const_cast<char*>(text.data()), text.size()};
  }
  if (size == 0) return {};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t sent = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
  if (sent < 0 && WouldBlock()) return {Status::kWantWrite};
  return SocketResult(sent);
}

// Forgets the socket, because its number may soon belong to another file.
void Link::Detach() {
  tls_.reset();
  socket_ = -1;
}

void Link::EndWriting() {
  if (tls_ && SSL_is_init_finished(tls_.get())) {
    ERR_clear_error();
    SSL_shutdown(tls_.get());
    ERR_clear_error();
  }
  tls_.reset();
  ::shutdown(socket_, SHUT_WR);
}

std::string Link::PeerName() const {
  if (!tls_) return "";
  X509* certificate = SSL_get0_peer_certificate(tls_.get());
  if (certificate == nullptr) return "";
  const X509_NAME* subject = X509_get_subject_name(certificate);
  const int place = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (place < 0) return "";
  unsigned char* text = nullptr;
  const int size =
      ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, place)));
  if (size < 0) return "";
  std::string name(reinterpret_cast<char*>(text), static_cast<std::size_t>(size));
  OPENSSL_free(text);
  return name;
}

}  // namespace perseus::http
