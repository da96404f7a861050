/* page_name.h - names in a root: page files and the folders they lie in.
 *
 *     v1/<identity: 32 hex>/<first 3 hex of parent key>/<page name>
 *     <page name> = <key: 32 hex>-<parent: 32 hex>-<h16 h32 h64 h128 h192: 40 hex>-<n>.page
 *
 * and likewise .ckpt for a checkpoint.
 *
 * Keys are cut to their first 16 bytes; the header inside has all 32, and a
 * hit compares those. h_i is the start of SHA-256("cairn prefix 1\0" | identity,
 * 32 | the page's first i tokens as i32le), 4 bytes in hex, zeros when the page is
 * shorter than i: it tells which of many children of one parent shares the most with a request.
 * n is decimal without leading zeros. Hex is lower case. Pure functions; a name
 * from a directory is hostile until parsed. */
#ifndef CAIRN_CORE_PAGE_NAME_H
#define CAIRN_CORE_PAGE_NAME_H

#include "cairn/identity.h"

#define CAIRN__PAGE_PREFIXES 5u /* lengths of h_i: 16, 32, 64, 128, 192 tokens */
extern const uint32_t cairn__page_prefix_tokens[CAIRN__PAGE_PREFIXES];

#define CAIRN__PAGE_NAME_KEY_SIZE 16u
/* 32 + 1 + 32 + 1 + 40 + 1 + 4 digits + ".page" + NUL */
#define CAIRN__PAGE_NAME_SIZE 117u
#define CAIRN__IDENTITY_NAME_SIZE 33u /* with NUL */
#define CAIRN__FANOUT_NAME_SIZE 4u    /* with NUL */

typedef struct cairn__page_name {
    uint8_t  key[CAIRN__PAGE_NAME_KEY_SIZE];
    uint8_t  parent[CAIRN__PAGE_NAME_KEY_SIZE];
    uint8_t  prefix[CAIRN__PAGE_PREFIXES][4]; /* h16, h32, h64, h128, h192 */
    uint32_t n_tokens;                        /* 1..4096 */
    bool     is_checkpoint;
} cairn__page_name;

/* The name of a page; parent NULL: first page (zeros). n_tokens in 1..4096
 * (asserted). That of a checkpoint is the same with is_checkpoint set. */
cairn__page_name cairn__page_name_of(const cairn_digest *identity, const cairn_key *key, const cairn_key *parent,
                                     const int32_t *tokens, uint32_t n_tokens);
void             cairn__page_name_format(const cairn__page_name *name, char buf[CAIRN__PAGE_NAME_SIZE]);
/* True when text is exactly what format() writes for some name. */
bool cairn__page_name_parse(const char *text, cairn__page_name *ret_name);

/* How many leading tokens name and tokens[0..n) seem to share by their h_i: the
 * largest i in {0, 16, ..., 192} up to which all h agree. A hint to order opens by; the
 * header's tokens decide. `want` = cairn__page_name_of() of the request's own
 * tokens (key and parent ignored). */
uint32_t cairn__page_name_shared(const cairn__page_name *name, const cairn__page_name *want);

/* Folder of an identity under v1/, and folder of a parent's children under it. */
void cairn__identity_name(const cairn_digest *identity, char buf[CAIRN__IDENTITY_NAME_SIZE]);
void cairn__fanout_name(const cairn_key *parent, char buf[CAIRN__FANOUT_NAME_SIZE]);

#endif
