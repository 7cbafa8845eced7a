/* The table of the libraries that were found, and the clock they share with our kernels. */
#include "peers/peers.h"

#include "base/threads.h"
#include "cpu/ceilings.h"

const Peer peers[] = {
#if defined(CVN_HAVE_DNNL)
    {"oneDNN", peer_onednn},
#endif
#if defined(CVN_HAVE_OPENBLAS)
    {"OpenBLAS", peer_openblas},
#endif
    {0},
};

double peer_seconds(void (*run)(void *context), void *context)
{
    enum { REPEATS = 7 };
    double seconds[REPEATS];
    run(context);
    for (int i = 0; i < REPEATS; i++) {
        int64_t begin = clock_ns();
        run(context);
        seconds[i] = (double)(clock_ns() - begin) * 1e-9;
    }
    return median(seconds, REPEATS);
}
