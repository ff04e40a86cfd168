/* What the programs below share: base.h of the door for C. */
#ifndef AM_CHECK_H
#define AM_CHECK_H
#include <ammpi.h>
#include <ammpi_spmd.h>

#define WHY "no more is known"
#define MEANING(number) "see am2.h"
#include "../../c/checks/base.h"

#define AM_Safe(call) GIVES(call, AM_OK)

#endif
