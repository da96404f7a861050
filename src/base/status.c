/* status.c - names, texts and codes of cairn_status, all from one list. */
#include "cairn/base.h"

#define STR2(x) #x
#define STR(x) STR2(x)

const char *cairn_status_name(cairn_status status)
{
    switch (status) {
#define X(name, value, text, http, code) case name: return #name;
        CAIRN_STATUS_LIST(X)
#undef X
    }
    return "CAIRN_UNKNOWN";
}

const char *cairn_status_text(cairn_status status)
{
    switch (status) {
#define X(name, value, text, http, code) case name: return text;
        CAIRN_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

int cairn_status_http(cairn_status status)
{
    switch (status) {
#define X(name, value, text, http, code) case name: return http;
        CAIRN_STATUS_LIST(X)
#undef X
    }
    return 500;
}

int cairn_status_exit_code(cairn_status status)
{
    switch (status) {
#define X(name, value, text, http, code) case name: return code;
        CAIRN_STATUS_LIST(X)
#undef X
    }
    return 1;
}

const char *cairn_version(void)
{
    return STR(CAIRN_VERSION_MAJOR) "." STR(CAIRN_VERSION_MINOR) "." STR(CAIRN_VERSION_PATCH);
}
