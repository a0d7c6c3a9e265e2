// Debian's libpq.a uses Kerberos (GSSAPI) and LDAP, which have no static libraries in Debian 12. A portable
// program does without both: a connection that needs one of them fails and says so. By default, libpq asks
// for Kerberos credentials first, finds none here, and goes on without (gssencmode=prefer).
#include <stddef.h>
#include <string.h>

typedef unsigned int status;  // OM_uint32 of GSSAPI.
enum { failure = 13u << 16, unavailable = 16u << 16 };

struct buffer {
  size_t length;
  void* value;
};

void* GSS_C_NT_HOSTBASED_SERVICE;
status gss_acquire_cred(status* minor) { return *minor = 0, failure; }
status gss_import_name(status* minor) { return *minor = 0, unavailable; }
status gss_init_sec_context(status* minor) { return *minor = 0, unavailable; }
status gss_wrap(status* minor) { return *minor = 0, unavailable; }
status gss_unwrap(status* minor) { return *minor = 0, unavailable; }
status gss_wrap_size_limit(status* minor) { return *minor = 0, unavailable; }
status gss_delete_sec_context(status* minor) { return *minor = 0, 0; }
status gss_release_buffer(status* minor) { return *minor = 0, 0; }
status gss_release_cred(status* minor) { return *minor = 0, 0; }
status gss_release_name(status* minor) { return *minor = 0, 0; }
status gss_display_status(status* minor, status code, int type, void* mechanism, status* more,
                          struct buffer* text) {
  (void)code, (void)type, (void)mechanism;
  static char message[] = "this program is built without Kerberos (use Debian's package of Perseus)";
  *minor = *more = 0;
  *text = (struct buffer){strlen(message), message};
  return 0;
}

// libpq stops where ldap_init fails, so the others are never called.
enum { not_supported = 92 };  // LDAP_NOT_SUPPORTED
void* ldap_init(const char* host, int port) { return (void)host, (void)port, NULL; }
char* ldap_err2string(int code) {
  (void)code;
  static char message[] = "this program is built without LDAP (use Debian's package of Perseus)";
  return message;
}
int ldap_set_option(void) { return not_supported; }
int ldap_simple_bind(void) { return -1; }
int ldap_result(void) { return -1; }
int ldap_search_st(void) { return not_supported; }
int ldap_count_entries(void) { return -1; }
int ldap_unbind(void) { return not_supported; }
int ldap_msgfree(void) { return not_supported; }
void* ldap_first_entry(void) { return NULL; }
void* ldap_get_values_len(void) { return NULL; }
void ldap_value_free_len(void) {}
