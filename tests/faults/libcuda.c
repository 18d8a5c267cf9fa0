/* A stand-in for NVIDIA's driver libraries, for tests on machines without a GPU.
 *
 * Built twice from this one file, as libcuda.so.1 and as libnvidia-ml.so.1:
 *     cc -shared -fPIC -o libcuda.so.1 -Wl,-soname,libcuda.so.1 libcuda.c
 * It is asked by its plain symbols and, as every CUDA runtime since major 11 does, by cuGetProcAddress.  What it
 * answers is driven by the environment:
 *     STANDIN_CUDA       cuDriverGetVersion's number, 1000 * major + 10 * minor   (13020)
 *     STANDIN_INIT       cuInit's code, or "hang", or "crash"                     (0)
 *     STANDIN_DEVICES    how many devices there are                               (1)
 *     STANDIN_SM         their compute capability as one number, 90 for 9.0       (90)
 *     STANDIN_NVML       nvmlInit's code, or "hang", or "crash"                   (0)
 *     STANDIN_NVML_GPUS  how many GPUs NVML counts                                (STANDIN_DEVICES)
 *     STANDIN_DRIVER     the driver version that NVML says                        (580.65.06)
 * No kernel runs: a call that is not listed below returns 801, not supported.  The runtime and torch report each code of
 * cuInit and a version that is too old as they do with the real driver; where cuInit says 0 they go on to 801.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, STUB = 34, INVALID_DEVICE = 101, NOT_SUPPORTED = 801 };

typedef struct {
    char bytes[16];
} uuid;

static const char *text(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static int number(const char *name, int otherwise) {
    const char *value = getenv(name);
    return value && *value ? atoi(value) : otherwise;
}

static int entered(const char *name) {
    const char *how = text(name, "0");
    if (!strcmp(how, "hang"))
        for (;;)
            pause();
    if (!strcmp(how, "crash"))
        raise(SIGSEGV);
    return atoi(how);
}

/* The driver */

static int initialised;

int cuInit(unsigned flags) {
    int code = flags ? INVALID_VALUE : entered("STANDIN_INIT");
    initialised = code == SUCCESS;
    return code;
}

int cuDriverGetVersion(int *version) {
    if (number("STANDIN_INIT", 0) == STUB)
        return STUB;
    *version = number("STANDIN_CUDA", 13020);
    return SUCCESS;
}

static int devices(void) { return number("STANDIN_DEVICES", 1); }

int cuDeviceGetCount(int *count) {
    if (!initialised)
        return NOT_INITIALIZED;
    *count = devices();
    return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
    if (!initialised)
        return NOT_INITIALIZED;
    if (ordinal < 0 || ordinal >= devices())
        return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

int cuDeviceGetName(char *name, int size, int device) {
    (void)device;
    strncpy(name, "stand-in", (size_t)size);
    return SUCCESS;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    *bytes = (size_t)80 << 30;
    return SUCCESS;
}

int cuDeviceGetUuid_v2(uuid *id, int device) {
    memset(id, 0, sizeof *id);
    id->bytes[15] = (char)device;
    return SUCCESS;
}

int cuDeviceGetUuid(uuid *id, int device) { return cuDeviceGetUuid_v2(id, device); }

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) { /* CUdevice_attribute of cuda.h */
    case 75:
        *value = number("STANDIN_SM", 90) / 10;
        break;
    case 76:
        *value = number("STANDIN_SM", 90) % 10;
        break;
    case 10: /* threads of a warp */
        *value = 32;
        break;
    case 1: /* threads of a block */
    case 2:
    case 3:
        *value = 1024;
        break;
    case 16: /* multiprocessors */
        *value = 132;
        break;
    case 39: /* threads of a multiprocessor */
        *value = 2048;
        break;
    case 34: /* PCI device, so that two devices differ */
        *value = device + 1;
        break;
    default:
        *value = 0;
    }
    return SUCCESS;
}

int cuDeviceGetPCIBusId(char *id, int size, int device) {
    char made[] = "0000:01:00.0";
    made[6] = (char)('1' + device);
    strncpy(id, made, (size_t)size);
    return SUCCESS;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    (void)device;
    *flags = 0;
    *active = 0;
    return SUCCESS;
}

int cuCtxGetCurrent(void **context) {
    *context = 0;
    return SUCCESS;
}

int cuCtxSetCurrent(void *context) { return context ? NOT_SUPPORTED : SUCCESS; }

int cuGetErrorName(int code, const char **name) {
    *name = code ? "CUDA_ERROR_OF_THE_STAND_IN" : "CUDA_SUCCESS";
    return SUCCESS;
}

int cuGetErrorString(int code, const char **words) {
    *words = code ? "the stand-in was told to say so" : "no error";
    return SUCCESS;
}

static int unsupported(void) { return NOT_SUPPORTED; }

/* A runtime whose driver started asks here for tables that no header names; so 801 is all that a healthy one hears. */
int cuGetExportTable(const void **table, const void *id) {
    (void)id;
    *table = 0;
    return NOT_SUPPORTED;
}

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *found);

int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(name, function, version, flags, 0);
}

static const struct {
    const char *name;
    void *function;
} TABLE[] = {
    {"cuInit", (void *)cuInit},
    {"cuDriverGetVersion", (void *)cuDriverGetVersion},
    {"cuDeviceGetCount", (void *)cuDeviceGetCount},
    {"cuDeviceGet", (void *)cuDeviceGet},
    {"cuDeviceGetName", (void *)cuDeviceGetName},
    {"cuDeviceTotalMem", (void *)cuDeviceTotalMem_v2},
    {"cuDeviceGetUuid", (void *)cuDeviceGetUuid_v2},
    {"cuDeviceGetAttribute", (void *)cuDeviceGetAttribute},
    {"cuDeviceGetPCIBusId", (void *)cuDeviceGetPCIBusId},
    {"cuDevicePrimaryCtxGetState", (void *)cuDevicePrimaryCtxGetState},
    {"cuCtxGetCurrent", (void *)cuCtxGetCurrent},
    {"cuCtxSetCurrent", (void *)cuCtxSetCurrent},
    {"cuGetErrorName", (void *)cuGetErrorName},
    {"cuGetErrorString", (void *)cuGetErrorString},
    {"cuGetExportTable", (void *)cuGetExportTable},
};

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *found) {
    (void)flags;
    *function = (void *)unsupported;
    if (!strcmp(name, "cuGetProcAddress")) /* its newer form takes one argument more */
        *function = version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
    for (size_t index = 0; index < sizeof TABLE / sizeof *TABLE; index++)
        if (!strcmp(name, TABLE[index].name))
            *function = TABLE[index].function;
    if (found)
        *found = 0; /* CU_GET_PROC_ADDRESS_SUCCESS */
    return SUCCESS;
}

/* NVML */

int nvmlInit_v2(void) { return entered("STANDIN_NVML"); }

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return entered("STANDIN_NVML");
}

int nvmlShutdown(void) { return SUCCESS; }

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
    strncpy(version, text("STANDIN_DRIVER", "580.65.06"), size);
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)number("STANDIN_NVML_GPUS", devices());
    return SUCCESS;
}
