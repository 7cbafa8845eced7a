#include "caravan/caravan.h"

const char *cvn_version(void)
{
    return CVN_VERSION;
}
