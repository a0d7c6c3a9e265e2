#include "tests/support/test_issuer.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace perseus::issuers {
namespace {

using nlohmann::json;
using Key = std::shared_ptr<EVP_PKEY>;

void Need(bool condition) {
  if (!condition) throw std::runtime_error("the test issuer failed");
}

std::string Encoded(std::string_view bytes) {
  std::string text(4 * (bytes.size() / 3 + 1), '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  while (text.ends_with('=')) text.pop_back();
  for (char& c : text) c = c == '+' ? '-' : c == '/' ? '_' : c;
  return text;
}

std::string Number(const EVP_PKEY& key, const char* name, std::size_t bytes = 0) {
  BIGNUM* number = nullptr;
  Need(EVP_PKEY_get_bn_param(&key, name, &number) == 1);
  const auto least = static_cast<std::size_t>(BN_num_bytes(number));
  std::string text(std::max(bytes, least), '\0');
  BN_bn2binpad(number, reinterpret_cast<unsigned char*>(text.data()),
               static_cast<int>(text.size()));
  BN_free(number);
  return Encoded(text);
}

json PublicKey(const std::string& id, const EVP_PKEY& key) {
  json jwk{{"kid", id}, {"use", "sig"}};
  if (EVP_PKEY_is_a(&key, "RSA") == 1) {
    jwk.update({{"kty", "RSA"},
                {"n", Number(key, OSSL_PKEY_PARAM_RSA_N)},
                {"e", Number(key, OSSL_PKEY_PARAM_RSA_E)}});
  } else if (EVP_PKEY_is_a(&key, "EC") == 1) {
    const bool is_384 = EVP_PKEY_get_bits(&key) == 384;
    const std::size_t bytes = is_384 ? 48 : 32;
    jwk.update({{"kty", "EC"},
                {"crv", is_384 ? "P-384" : "P-256"},
                {"x", Number(key, OSSL_PKEY_PARAM_EC_PUB_X, bytes)},
                {"y", Number(key, OSSL_PKEY_PARAM_EC_PUB_Y, bytes)}});
  } else {
    std::string bytes(32, '\0');
    std::size_t size = bytes.size();
    Need(EVP_PKEY_get_raw_public_key(&key, reinterpret_cast<unsigned char*>(bytes.data()), &size) ==
         1);
    jwk.update({{"kty", "OKP"}, {"crv", "Ed25519"}, {"x", Encoded(bytes)}});
  }
  return jwk;
}

// OpenSSL writes the two numbers of an elliptic signature as DER, JOSE side by side.
std::string SideBySide(const std::string& der, std::size_t bytes) {
  const auto* at = reinterpret_cast<const unsigned char*>(der.data());
  ECDSA_SIG* signature = d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(der.size()));
  Need(signature != nullptr);
  std::string both(2 * bytes, '\0');
  auto* out = reinterpret_cast<unsigned char*>(both.data());
  BN_bn2binpad(ECDSA_SIG_get0_r(signature), out, static_cast<int>(bytes));
  BN_bn2binpad(ECDSA_SIG_get0_s(signature), out + bytes, static_cast<int>(bytes));
  ECDSA_SIG_free(signature);
  return both;
}

std::string Signature(EVP_PKEY& key, const std::string& text) {
  const bool is_384 = EVP_PKEY_is_a(&key, "EC") == 1 && EVP_PKEY_get_bits(&key) == 384;
  const EVP_MD* digest = EVP_PKEY_is_a(&key, "ED25519") == 1 ? nullptr
                         : is_384                            ? EVP_sha384()
                                                             : EVP_sha256();
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  Need(EVP_DigestSignInit(context.get(), nullptr, digest, nullptr, &key) == 1);
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  std::size_t size = 0;
  Need(EVP_DigestSign(context.get(), nullptr, &size, bytes, text.size()) == 1);
  std::string signature(size, '\0');
  Need(EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                      bytes, text.size()) == 1);
  signature.resize(size);
  return EVP_PKEY_is_a(&key, "EC") == 1 ? SideBySide(signature, is_384 ? 48 : 32) : signature;
}

std::string AlgorithmOf(const EVP_PKEY& key) {
  if (EVP_PKEY_is_a(&key, "RSA") == 1) return "RS256";
  if (EVP_PKEY_is_a(&key, "EC") == 1) return EVP_PKEY_get_bits(&key) == 384 ? "ES384" : "ES256";
  return "EdDSA";
}

}  // namespace

struct TestIssuer::Keys {
  std::mutex mutex;
  std::map<std::string, Key> all;
  std::map<std::string, json> published;
};

TestIssuer::TestIssuer() : keys_(std::make_shared<Keys>()) {
  http::Router router;
  const auto answer = [this](std::function<std::string()> body) -> http::Handler {
    return [this, body](http::Call&) -> boost::asio::awaitable<http::Response> {
      ++reads_;
      while (mood_ == Mood::kHangs) {
        boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor,
                                        std::chrono::milliseconds(20));
        co_await timer.async_wait(boost::asio::use_awaitable);
      }
      if (mood_ == Mood::kFails) co_return http::Response{.status = 503};
      co_return http::Response{.body = body()};
    };
  };
  router.Add("GET", "/.well-known/openid-configuration", answer([this] {
               --reads_;
               return json{{"issuer", url()}, {"jwks_uri", url() + "/keys"}}.dump();
             }));
  router.Add("GET", "/keys", answer([this] { return KeySetText(); }));
  server_ = std::make_unique<http::TestServer>(std::move(router));
}

TestIssuer::~TestIssuer() { mood_ = Mood::kAnswers; }  // A request may hang.

std::string TestIssuer::url() const { return server_->Url(); }

void TestIssuer::AddSecretKey(const std::string& id, Kind kind) {
  Key key(kind == Kind::kRsa    ? EVP_RSA_gen(2048)
          : kind == Kind::kP256 ? EVP_EC_gen("P-256")
          : kind == Kind::kP384 ? EVP_EC_gen("P-384")
                                : EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"),
          EVP_PKEY_free);
  Need(key != nullptr);
  const std::lock_guard lock(keys_->mutex);
  keys_->all[id] = std::move(key);
}

void TestIssuer::AddKey(const std::string& id, Kind kind) {
  AddSecretKey(id, kind);
  const std::lock_guard lock(keys_->mutex);
  keys_->published[id] = PublicKey(id, *keys_->all.at(id));
}

void TestIssuer::RemoveKey(const std::string& id) {
  const std::lock_guard lock(keys_->mutex);
  keys_->published.erase(id);
}

std::string TestIssuer::KeySetText() const {
  const std::lock_guard lock(keys_->mutex);
  json set{{"keys", json::array()}};
  for (const auto& [id, key] : keys_->published) set["keys"].push_back(key);
  return set.dump();
}

json TestIssuer::Claims(const json& changes) const {
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  json claims{{"iss", url()}, {"sub", "u-1"}, {"aud", "perseus"}, {"iat", now}, {"exp", now + 600}};
  if (changes.is_object()) claims.merge_patch(changes);
  return claims;
}

std::string TestIssuer::Token(const std::string& key, const json& claims,
                              const json& header) const {
  Key signer;
  {
    const std::lock_guard lock(keys_->mutex);
    signer = keys_->all.at(key);
  }
  json head{{"alg", AlgorithmOf(*signer)}, {"kid", key}, {"typ", "JWT"}};
  if (header.is_object()) head.merge_patch(header);
  const std::string text = Encoded(head.dump()) + "." + Encoded(Claims(claims).dump());
  return text + "." + Encoded(Signature(*signer, text));
}

std::string TestIssuer::HmacToken(const json& header, const json& claims,
                                  const std::string& secret) {
  const std::string text = Encoded(header.dump()) + "." + Encoded(claims.dump());
  unsigned char code[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), code, &size);
  return text + "." + Encoded({reinterpret_cast<const char*>(code), size});
}

std::string TestIssuer::PublicPem(const std::string& key) const {
  const std::lock_guard lock(keys_->mutex);
  const std::unique_ptr<BIO, void (*)(BIO*)> bio(BIO_new(BIO_s_mem()), BIO_free_all);
  Need(PEM_write_bio_PUBKEY(bio.get(), keys_->all.at(key).get()) == 1);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}

}  // namespace perseus::issuers
