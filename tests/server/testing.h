/* testing.h - what the tests of the server's parts include. */
#ifndef CAIRN_SERVER_TESTING_H
#define CAIRN_SERVER_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../skip.h"

#endif
