// Certificates and keys into what connections are made with. OpenSSL stays out of the headers.
#pragma once

#include <memory>
#include <string>

#include "perseus/base/result.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX.

namespace perseus::http {

// PEM files. With `client_authority`, clients have to show a certificate of its.
struct TlsFiles {
  std::string certificate;  // With its chain.
  std::string key;
  std::string client_authority = {};
};

// Shared by connections; null: none, plain HTTP.
using TlsContext = std::shared_ptr<ssl_ctx_st>;

// TLS 1.2 and 1.3; no resumption, so that a certificate or an authority that is taken away is gone
// with the next connection. kInput: which file, and why it will not do.
Result<TlsContext> ServerTls(const TlsFiles& files);

// Whom a client trusts (empty: whom the system does) and what it shows (empty: nothing).
struct ClientTlsFiles {
  std::string authority;
  std::string certificate;
  std::string key;
};
Result<TlsContext> ClientTls(const ClientTlsFiles& files);

// The reason of OpenSSL's last failure in this thread, which is taken off its list.
std::string TlsFailure();

}  // namespace perseus::http
