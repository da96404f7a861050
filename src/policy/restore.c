/* restore.c - see restore.h. */
#include "policy/restore.h"

bool cairn__restore_pays(const cairn__restore_case *c)
{
    if (c->n_tokens == 0)
        return false;
    if (!(c->prefill_ns_per_token > 0) || !(c->restore_ns_per_byte > 0))
        return true;
    double saved_ns = (double)c->n_tokens * c->prefill_ns_per_token;
    double spent_ns = (double)c->bytes * c->restore_ns_per_byte + c->overhead_ns;
    return spent_ns < saved_ns;
}
