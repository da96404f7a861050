/* keys.h - which API key belongs to which tenant, and the salt that keeps what
 * tenants computed apart. Read-only after load, any thread. */
#ifndef CAIRN_SERVER_KEYS_H
#define CAIRN_SERVER_KEYS_H

#include "cairn/identity.h"
#include "server/http.h"

typedef struct cairn__keys cairn__keys;

/* The file of --api-key-file: a key and the name of its tenant on each line,
 * separated by blanks; empty lines and lines that begin with '#' say nothing. A
 * text of an error names the line and never a key. CAIRN_EINVAL, CAIRN_ENOMEM,
 * and those of cairn__secret_read(). */
CAIRN_MUST_USE cairn_status cairn__keys_load(const char *path, cairn__keys **ret_keys, cairn_error *error);
/* The same from text[0..size); path is for messages. */
CAIRN_MUST_USE cairn_status cairn__keys_parse(const char *path, const char *text, size_t size, cairn__keys **ret_keys,
                                              cairn_error *error);
void                        cairn__keys_destroy(cairn__keys *keys); /* accepts NULL */
uint32_t                    cairn__keys_count(const cairn__keys *keys);

/* The tenant that the request's key belongs to, borrowed; NULL: it has none that
 * is known. `Authorization: Bearer KEY` counts, without it `x-api-key: KEY`. How
 * long this takes says nothing about the keys. */
const char *cairn__keys_tenant(const cairn__keys *keys, const cairn__http_head *head);

/* What KV of a request is bound to. NULL: no tenant (a server without keys), no
 * salt of the request's own; both NULL: zeros. The request's salt only narrows:
 * no two tenants have a salt in common, whatever their requests say. */
cairn_digest cairn__tenant_salt(const char *tenant, const char *cache_salt);

#endif
