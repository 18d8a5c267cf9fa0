/* A driver without a GPU: built as libcuda.so.1, it answers with the number in DRIVER_SAYS and the version in DRIVER_IS. */
#include <stdlib.h>
#include <string.h>
static int number(const char *name, int otherwise) { const char *said = getenv(name); return said ? atoi(said) : otherwise; }
static int says(void) { return number("DRIVER_SAYS", 100); }
int cuInit(unsigned flags) { return says(); }
int cuDriverGetVersion(int *version) { *version = number("DRIVER_IS", 13000); return 0; }
int cuDeviceGetCount(int *count) { *count = 0; return says(); }
int cuGetErrorName(int error, const char **name) { *name = getenv("DRIVER_NAMES"); return *name ? 0 : 1; }
int cuGetErrorString(int error, const char **text) { *text = getenv("DRIVER_TELLS"); return *text ? 0 : 1; }
int cuGetExportTable(const void **table, const void *id) { static void *none[64]; *table = none; return 0; }
static int any(void) { return says(); }
int cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long long flags, int *status) {
    *found = !strcmp(name, "cuInit") ? (void *)cuInit
        : !strcmp(name, "cuDriverGetVersion") ? (void *)cuDriverGetVersion
        : !strcmp(name, "cuGetExportTable") ? (void *)cuGetExportTable
        : !strncmp(name, "cuGetProcAddress", 16) ? (void *)cuGetProcAddress_v2 : (void *)any;
    if (status) *status = 0;
    return 0;
}
int cuGetProcAddress(const char *name, void **found, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(name, found, version, flags, 0);
}
