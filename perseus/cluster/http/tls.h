// Makes TLS contexts from certificates and keys. No other header includes OpenSSL.
#pragma once

#include <memory>
#include <string>

#include "perseus/base/result.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX.

namespace perseus::http {

// The paths of PEM files. If `client_authority` is set, clients must have a certificate that this
// authority signed.
struct TlsFiles {
  std::string certificate;  // The certificate with its chain.
  std::string key;
  std::string client_authority = {};
};

// A TLS context, which connections share. Null: plain HTTP.
using TlsContext = std::shared_ptr<ssl_ctx_st>;

// Makes a context for TLS 1.2 and 1.3. The context has no session resumption, so new connections
// never use a removed certificate or authority. Fails (kInput) with the file and the reason if a
// file cannot be used.
Result<TlsContext> ServerTls(const TlsFiles& files);

// The authority that a client trusts, and the client's certificate and key. An empty authority
// means the authorities of SSL_CERT_FILE, SSL_CERT_DIR, or the system. An empty certificate and key
// mean that the client has none.
struct ClientTlsFiles {
  std::string authority;
  std::string certificate;
  std::string key;
};
Result<TlsContext> ClientTls(const ClientTlsFiles& files);

// Removes and returns the reason for OpenSSL's last failure in this thread.
std::string TlsFailure();

}  // namespace perseus::http
