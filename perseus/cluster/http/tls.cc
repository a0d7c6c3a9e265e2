#include "perseus/cluster/http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "perseus/base/file.h"

namespace perseus::http {
namespace {

// Without this function, OpenSSL would ask for the password of a key on the terminal.
int NoPassword(char*, int, int, void*) { return 0; }

Result<TlsContext> NewContext(const SSL_METHOD* method) {
  TlsContext context(SSL_CTX_new(method), SSL_CTX_free);
  if (!context || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1) {
    return FailAs(ErrorKind::kSystem, "cannot set up TLS: {} (check the installation of OpenSSL)",
                  TlsFailure());
  }
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Release the buffers of idle connections, because thousands of streams may be idle.
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_default_passwd_cb(context.get(), NoPassword);
  return context;
}

// Reports a clear error for an unreadable file. OpenSSL only reports that one of its functions
// failed.
Result<void> CheckReadable(const std::string& path) {
  const auto text = ReadFile(path);
  if (text) return {};
  Error error = text.error();
  error.kind = ErrorKind::kInput;  // The settings are wrong, whatever the cause.
  return tl::unexpected<Error>(std::move(error));
}

Result<void> UseCertificate(SSL_CTX& context, const std::string& certificate,
                            const std::string& key) {
  PERSEUS_RETURN_IF_ERROR(CheckReadable(certificate));
  PERSEUS_RETURN_IF_ERROR(CheckReadable(key));
  if (SSL_CTX_use_certificate_chain_file(&context, certificate.c_str()) != 1) {
    return Fail("{} is not a certificate: {} (give a PEM file with the certificate and its chain)",
                certificate, TlsFailure());
  }
  if (SSL_CTX_use_PrivateKey_file(&context, key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return Fail("{} is not the key of {}: {} (give its PEM file, without a password)", key,
                certificate, TlsFailure());
  }
  return {};
}

Result<void> Trust(SSL_CTX& context, const std::string& authority) {
  PERSEUS_RETURN_IF_ERROR(CheckReadable(authority));
  if (SSL_CTX_load_verify_file(&context, authority.c_str()) != 1) {
    return Fail("{} is not the certificate of an authority: {} (give a PEM file)", authority,
                TlsFailure());
  }
  return {};
}

// The files in which distributions keep the certificates of trusted authorities. OpenSSL knows only
// the path of the distribution that built it, but a program with a static OpenSSL also runs on
// other distributions.
constexpr const char* kAuthoritiesOfDistributions[] = {
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch, Alpine.
    "/etc/pki/tls/certs/ca-bundle.crt",                   // RHEL, Rocky, Amazon Linux, Fedora.
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // The same, newer versions.
    "/etc/ssl/ca-bundle.pem",                             // SLES, openSUSE.
    "/etc/ssl/cert.pem",                                  // Alpine, FreeBSD.
};

bool Exists(const char* path) {
  std::error_code ignored;
  return path != nullptr && std::filesystem::exists(path, ignored);
}

// Trusts the authorities of SSL_CERT_FILE and SSL_CERT_DIR, if one of these variables is set.
// Otherwise trusts the authorities in OpenSSL's own paths. If these paths do not exist, trusts the
// authorities of the distribution.
void TrustSystem(SSL_CTX& context) {
  SSL_CTX_set_default_verify_paths(&context);
  ERR_clear_error();
  if (std::getenv(X509_get_default_cert_file_env()) != nullptr ||
      std::getenv(X509_get_default_cert_dir_env()) != nullptr ||
      Exists(X509_get_default_cert_file()) || Exists(X509_get_default_cert_dir())) {
    return;
  }
  for (const char* path : kAuthoritiesOfDistributions) {
    if (Exists(path) && SSL_CTX_load_verify_file(&context, path) == 1) return;
  }
  ERR_clear_error();
}

}  // namespace

std::string TlsFailure() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  return reason == nullptr ? "unknown reason" : reason;
}

Result<TlsContext> ServerTls(const TlsFiles& files) {
  PERSEUS_ASSIGN_OR_RETURN(TlsContext context, NewContext(TLS_server_method()));
  SSL_CTX& settings = *context;
  PERSEUS_RETURN_IF_ERROR(UseCertificate(settings, files.certificate, files.key));
  SSL_CTX_set_session_cache_mode(&settings, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(&settings, SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_num_tickets(&settings, 0);
  if (!files.client_authority.empty()) {
    PERSEUS_RETURN_IF_ERROR(Trust(settings, files.client_authority));
    SSL_CTX_set_verify(&settings, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  return context;
}

Result<TlsContext> ClientTls(const ClientTlsFiles& files) {
  PERSEUS_ASSIGN_OR_RETURN(TlsContext context, NewContext(TLS_client_method()));
  SSL_CTX& settings = *context;
  SSL_CTX_set_verify(&settings, SSL_VERIFY_PEER, nullptr);
  if (files.authority.empty()) {
    TrustSystem(settings);
  } else {
    PERSEUS_RETURN_IF_ERROR(Trust(settings, files.authority));
  }
  if (files.certificate.empty() != files.key.empty()) {
    return Fail("a certificate needs a key, and a key needs a certificate (give both or none)");
  }
  if (!files.certificate.empty()) {
    PERSEUS_RETURN_IF_ERROR(UseCertificate(settings, files.certificate, files.key));
  }
  return context;
}

}  // namespace perseus::http
