#include "tests/support/test_certificates.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <stdexcept>
#include <utility>

namespace perseus::http {
namespace {

void Require(bool condition) {
  if (!condition) throw std::runtime_error("cannot make a certificate");
}

std::shared_ptr<EVP_PKEY> NewKey() {
  std::shared_ptr<EVP_PKEY> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  Require(key != nullptr);
  return key;
}

void Extend(X509& certificate, X509& issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  Require(extension != nullptr);
  Require(X509_add_ext(&certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

std::shared_ptr<X509> NewCertificate(EVP_PKEY& key, const std::string& common_name) {
  static long serial = 0;
  std::shared_ptr<X509> certificate(X509_new(), X509_free);
  Require(certificate != nullptr);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  Require(X509_set_pubkey(certificate.get(), &key) == 1);
  return certificate;
}

template <typename Write>
void WritePem(const std::filesystem::path& path, Write write) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "w"),
                                                             std::fclose);
  Require(file != nullptr && write(file.get()) == 1);
}

void WriteCertificate(const std::filesystem::path& path, X509& certificate) {
  WritePem(path, [&](std::FILE* file) { return PEM_write_X509(file, &certificate); });
}

}  // namespace

TestAuthority::TestAuthority(std::filesystem::path directory, const std::string& name)
    : directory_(std::move(directory)),
      file_(directory_ / (name + ".pem")),
      key_(NewKey()),
      certificate_(NewCertificate(*key_, name)) {
  X509_set_issuer_name(certificate_.get(), X509_get_subject_name(certificate_.get()));
  Extend(*certificate_, *certificate_, NID_basic_constraints, "critical,CA:TRUE");
  Require(X509_sign(certificate_.get(), key_.get(), EVP_sha256()) > 0);
  WriteCertificate(file_, *certificate_);
}

TestAuthority::Files TestAuthority::Issue(const std::string& file, const std::string& common_name,
                                          const std::string& names) {
  const auto key = NewKey();
  const auto certificate = NewCertificate(*key, common_name);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate_.get()));
  if (!names.empty()) Extend(*certificate, *certificate_, NID_subject_alt_name, names);
  Require(X509_sign(certificate.get(), key_.get(), EVP_sha256()) > 0);
  const Files files{directory_ / (file + ".pem"), directory_ / (file + ".key")};
  WriteCertificate(files.certificate, *certificate);
  WritePem(files.key, [&](std::FILE* out) {
    return PEM_write_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  return files;
}

}  // namespace perseus::http
