/* The stand-in for a driver, with the contexts that a guard makes: STANDIN_CONTEXT is what making one gives, on
   STANDIN_CONTEXT_OF. */
#include "libcuda.c"
int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = &initialised;
    if (!initialised)
        return NOT_INITIALIZED;
    return device == number("STANDIN_CONTEXT_OF", device) ? entered("STANDIN_CONTEXT") : SUCCESS;
}
