/* A stand-in for NVIDIA's management library, for tests on machines without a GPU.
 *
 *     cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 nvml.c
 *
 * It answers from the files that STANDIN_NVML_PROFILE names, one after another with a colon between them; of two lines
 * for one key the later one counts.  A line is "key = value"; "#" begins a comment; "\xff" in a value is that byte.
 *     count = 8                                   how many GPUs there are
 *     gpu.temperature = 31                        of every GPU
 *     gpu.3.temperature = 95                      of GPU 3 alone
 *     gpu.3.nvlink.5.state = 0                    of one of its links; gpu.nvlink.state is that of every link
 *     gpu.field.230 = 1                           a field of nvmlDeviceGetFieldValues; gpu.field.164.5 of link 5 alone
 *     gpu.2.lost = 1                              every call for GPU 2 returns 15; gpu.2.reset = 1 returns 16
 *     nvmlDeviceGetTemperature = error 999        what a call does in place of answering: an error, "hang" or "crash"
 *     gpu.3.nvmlDeviceGetTemperature = hang       the same for one GPU
 * What no line says is not supported (3), as a real GPU answers for what it does not have.  Structures, their versions
 * and the numbers of errors and fields are nvml.h's.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    GPU_IS_LOST = 15,
    RESET_REQUIRED = 16,
    VERSION_MISMATCH = 25
};
enum { MOST_GPUS = 64, MOST_LINES = 4096, MOST_MIG = 16, ANSWER = -1 };

typedef struct device {
    int gpu;
} device;

/* The profile */

static char *keys[MOST_LINES], *values[MOST_LINES];
static int lines, initialised;
static device devices[MOST_GPUS], instances[MOST_MIG];

static char *trimmed(char *text) {
    char *end;
    text += strspn(text, " \t");
    for (end = text + strlen(text); end > text && strchr(" \t\r\n", end[-1]); end--)
        ;
    *end = 0;
    return text;
}

static void unescaped(char *text) {
    char *to = text;
    unsigned byte;
    for (; *text; to++) {
        if (text[0] == '\\' && text[1] == 'x' && sscanf(text + 2, "%2x", &byte) == 1) {
            *to = (char)byte;
            text += 4;
        } else {
            *to = *text++;
        }
    }
    *to = 0;
}

static void load(const char *path) {
    char line[1024];
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "no profile at %s\n", path);
        abort();
    }
    while (fgets(line, sizeof line, file)) {
        char *value, *comment = strchr(line, '#');
        if (comment)
            *comment = 0;
        value = strchr(line, '=');
        if (!value)
            continue;
        *value++ = 0;
        if (lines == MOST_LINES)
            abort();
        keys[lines] = strdup(trimmed(line));
        values[lines] = strdup(trimmed(value));
        unescaped(values[lines++]);
    }
    fclose(file);
}

static void load_all(void) {
    const char *named = getenv("STANDIN_NVML_PROFILE");
    char *names = strdup(named ? named : ""), *rest = names, *name;
    while ((name = strsep(&rest, ":")))
        if (*name)
            load(name);
    free(names);
}

static const char *looked_up(const char *key) {
    int line;
    for (line = lines - 1; line >= 0; line--)
        if (!strcmp(keys[line], key))
            return values[line];
    return NULL;
}

/* What the profile says of GPU `gpu`, or of every GPU; NULL if nothing. */
static const char *said(int gpu, const char *key) {
    char whole[160];
    const char *value;
    snprintf(whole, sizeof whole, "gpu.%d.%s", gpu, key);
    if ((value = looked_up(whole)))
        return value;
    snprintf(whole, sizeof whole, "gpu.%s", key);
    return looked_up(whole);
}

static const char *said_of(int gpu, const char *what, unsigned which, const char *key) {
    char whole[96];
    const char *value;
    snprintf(whole, sizeof whole, "%s.%u%s%s", what, which, *key ? "." : "", key);
    if ((value = said(gpu, whole)))
        return value;
    snprintf(whole, sizeof whole, "%s%s%s", what, *key ? "." : "", key);
    return said(gpu, whole);
}

static uint64_t number(const char *value) {
    return *value == '-' ? (uint64_t)strtoll(value, NULL, 0) : strtoull(value, NULL, 0);
}

/* Faults */

static int told(const char *how) {
    if (!how)
        return ANSWER;
    if (!strcmp(how, "hang"))
        for (;;)
            pause();
    if (!strcmp(how, "crash"))
        raise(SIGSEGV);
    if (!strncmp(how, "error ", 6))
        return atoi(how + 6);
    fprintf(stderr, "a call cannot be told to `%s`\n", how);
    abort();
}

static int sick(device *of) {
    const char *how;
    if ((how = said(of->gpu, "lost")) && atoi(how))
        return GPU_IS_LOST;
    if ((how = said(of->gpu, "reset")) && atoi(how))
        return RESET_REQUIRED;
    return ANSWER;
}

/* The error that a call for a GPU returns, or ANSWER. */
static int entered(device *of, const char *call) {
    int code = told(of ? said(of->gpu, call) : NULL);
    if (code == ANSWER)
        code = told(looked_up(call));
    if (code != ANSWER)
        return code;
    if (!initialised)
        return UNINITIALIZED;
    return of ? sick(of) : ANSWER;
}

#define ENTER(of)                                                                                                      \
    do {                                                                                                               \
        int entered_code = entered(of, __func__);                                                                      \
        if (entered_code != ANSWER)                                                                                    \
            return entered_code;                                                                                       \
    } while (0)

static int text_of(const char *value, char *to, unsigned room) {
    if (!value)
        return NOT_SUPPORTED;
    if (strlen(value) >= room)
        return INSUFFICIENT_SIZE;
    strcpy(to, value);
    return SUCCESS;
}

static int number_of(const char *value, unsigned *to) {
    if (!value)
        return NOT_SUPPORTED;
    *to = (unsigned)number(value);
    return SUCCESS;
}

static int wide_of(const char *value, unsigned long long *to) {
    if (!value)
        return NOT_SUPPORTED;
    *to = number(value);
    return SUCCESS;
}

#define TEXT(call, key)                                                                                                \
    int call(device *of, char *to, unsigned room) {                                                                    \
        ENTER(of);                                                                                                     \
        return text_of(said(of->gpu, key), to, room);                                                                  \
    }
#define NUMBER(call, key)                                                                                              \
    int call(device *of, unsigned *to) {                                                                               \
        ENTER(of);                                                                                                     \
        return number_of(said(of->gpu, key), to);                                                                      \
    }
#define WIDE(call, key)                                                                                                \
    int call(device *of, unsigned long long *to) {                                                                     \
        ENTER(of);                                                                                                     \
        return wide_of(said(of->gpu, key), to);                                                                        \
    }
#define PAIR(call, first, second)                                                                                      \
    int call(device *of, unsigned *to, unsigned *also) {                                                               \
        ENTER(of);                                                                                                     \
        return number_of(said(of->gpu, first), to) || number_of(said(of->gpu, second), also) ? NOT_SUPPORTED           \
                                                                                             : SUCCESS;                \
    }
/* A number that depends on an enumeration: the key is the prefix and the enumerator's name. */
#define NUMBER_BY(call, prefix, ...)                                                                                   \
    int call(device *of, unsigned which, unsigned *to) {                                                               \
        static const char *const names[] = {__VA_ARGS__};                                                              \
        ENTER(of);                                                                                                     \
        if (which >= sizeof names / sizeof *names)                                                                     \
            return INVALID_ARGUMENT;                                                                                   \
        return number_of(said_of(of->gpu, prefix, 0, names[which]), to);                                               \
    }

/* The library and the machine */

int nvmlInitWithFlags(unsigned flags) {
    int code, gpu;
    (void)flags;
    if (!lines)
        load_all();
    if ((code = told(looked_up("nvmlInit"))) != ANSWER)
        return code;
    for (gpu = 0; gpu < MOST_GPUS; gpu++)
        devices[gpu].gpu = gpu;
    for (gpu = 0; gpu < MOST_MIG; gpu++)
        instances[gpu].gpu = gpu;
    initialised = 1;
    return SUCCESS;
}

int nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

int nvmlShutdown(void) {
    initialised = 0;
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *to, unsigned room) {
    ENTER(NULL);
    return text_of(looked_up("driver"), to, room);
}

int nvmlSystemGetNVMLVersion(char *to, unsigned room) {
    ENTER(NULL);
    return text_of(looked_up("library"), to, room);
}

int nvmlSystemGetCudaDriverVersion_v2(unsigned *to) {
    ENTER(NULL);
    return number_of(looked_up("cuda"), to);
}

struct confidential {
    unsigned environment, feature, tools;
};

int nvmlSystemGetConfComputeState(struct confidential *state) {
    ENTER(NULL);
    state->environment = state->tools = 0;
    return number_of(looked_up("confidential"), &state->feature);
}

int nvmlSystemGetConfComputeGpusReadyState(unsigned *to) {
    ENTER(NULL);
    return number_of(looked_up("confidential.ready"), to);
}

int nvmlDeviceGetCount_v2(unsigned *to) {
    ENTER(NULL);
    return number_of(looked_up("count"), to);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned gpu, device **handle) {
    const char *count = looked_up("count");
    if (!count || gpu >= number(count) || gpu >= MOST_GPUS)
        return INVALID_ARGUMENT;
    {
        /* of a lost GPU too there is a handle, unless the profile says otherwise */
        int code = told(said((int)gpu, __func__));
        if (code == ANSWER)
            code = told(looked_up(__func__));
        if (code != ANSWER)
            return code;
    }
    *handle = &devices[gpu];
    return SUCCESS;
}

/* Who a GPU is */

TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetBoardPartNumber, "part_number")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom")
NUMBER(nvmlDeviceGetMinorNumber, "minor")
NUMBER(nvmlDeviceGetBrand, "brand")
NUMBER(nvmlDeviceGetArchitecture, "architecture")
PAIR(nvmlDeviceGetCudaComputeCapability, "sm.major", "sm.minor")

struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(device *of, struct pci *to) {
    const char *address;
    ENTER(of);
    address = said(of->gpu, "pci");
    memset(to, 0, sizeof *to);
    if (!address)
        return NOT_SUPPORTED;
    sscanf(address, "%x:%x:%x", &to->domain, &to->bus, &to->device);
    return text_of(address, to->bus_id, sizeof to->bus_id);
}

int nvmlDeviceValidateInforom(device *of) {
    const char *corrupt;
    ENTER(of);
    if (!(corrupt = said(of->gpu, "inforom.corrupt")))
        return NOT_SUPPORTED;
    return number(corrupt) ? 14 : SUCCESS;
}

int nvmlDeviceGetGspFirmwareVersion(device *of, char *to) {
    ENTER(of);
    return text_of(said(of->gpu, "gsp.version"), to, 64);
}

int nvmlDeviceGetGspFirmwareMode(device *of, unsigned *on, unsigned *usual) {
    ENTER(of);
    *usual = 1;
    return number_of(said(of->gpu, "gsp"), on);
}

/* Modes */

NUMBER(nvmlDeviceGetPersistenceMode, "persistence")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetDisplayActive, "display")
NUMBER(nvmlDeviceGetAccountingMode, "accounting")
PAIR(nvmlDeviceGetEccMode, "ecc", "ecc.pending")
PAIR(nvmlDeviceGetMigMode, "mig", "mig.pending")
NUMBER(nvmlDeviceGetMaxMigDeviceCount, "mig.most")
NUMBER(nvmlDeviceGetVirtualizationMode, "virtual")

int nvmlDeviceGetMigDeviceHandleByIndex(device *of, unsigned index, device **handle) {
    const char *there;
    ENTER(of);
    there = said(of->gpu, "mig.instances");
    if (!there || index >= number(there) || index >= MOST_MIG)
        return NOT_FOUND;
    *handle = &instances[index];
    return SUCCESS;
}

struct licenses {
    int supported;
    unsigned count;
    struct {
        unsigned feature, state;
        char license[128], product[128];
        unsigned enabled;
        struct {
            uint32_t year;
            uint16_t month, day, hour, minute, second;
            uint8_t status;
        } expiry;
    } features[3];
};

int nvmlDeviceGetGridLicensableFeatures_v4(device *of, struct licenses *to) {
    const char *state;
    ENTER(of);
    state = said(of->gpu, "licensed");
    memset(to, 0, sizeof *to);
    to->supported = state != NULL;
    if (state) {
        to->count = 1;
        to->features[0].feature = 4;
        to->features[0].state = (unsigned)number(state);
        to->features[0].enabled = 1;
    }
    return SUCCESS;
}

/* Memory and its errors */

struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo(device *of, struct memory *to) {
    unsigned long long reserved = 0;
    ENTER(of);
    if (wide_of(said(of->gpu, "memory"), &to->total) || wide_of(said(of->gpu, "memory.used"), &to->used))
        return NOT_SUPPORTED;
    wide_of(said(of->gpu, "memory.reserved"), &reserved);
    to->used += reserved;
    to->free = to->total - to->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(device *of, struct memory_v2 *to) {
    ENTER(of);
    if (to->version != (sizeof *to | 2u << 24))
        return VERSION_MISMATCH;
    if (wide_of(said(of->gpu, "memory"), &to->total) || wide_of(said(of->gpu, "memory.used"), &to->used))
        return NOT_SUPPORTED;
    to->reserved = 0;
    wide_of(said(of->gpu, "memory.reserved"), &to->reserved);
    to->free = to->total - to->reserved - to->used;
    return SUCCESS;
}

int nvmlDeviceGetBAR1MemoryInfo(device *of, struct memory *to) {
    ENTER(of);
    if (wide_of(said(of->gpu, "bar1"), &to->total) || wide_of(said(of->gpu, "bar1.used"), &to->used))
        return NOT_SUPPORTED;
    to->free = to->total - to->used;
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(device *of, unsigned uncorrected, unsigned ever, unsigned long long *to) {
    static const char *const names[] = {"ecc.corrected", "ecc.corrected.ever", "ecc.uncorrected",
                                        "ecc.uncorrected.ever"};
    const char *on;
    ENTER(of);
    if (uncorrected > 1 || ever > 1)
        return INVALID_ARGUMENT;
    if (!(on = said(of->gpu, "ecc")) || !number(on)) /* no ECC, no counters */
        return NOT_SUPPORTED;
    return wide_of(said(of->gpu, names[2 * uncorrected + ever]), to);
}

int nvmlDeviceGetRemappedRows(device *of, unsigned *correctable, unsigned *uncorrectable, unsigned *pending,
                              unsigned *failed) {
    ENTER(of);
    return number_of(said(of->gpu, "remap.correctable"), correctable) ||
                   number_of(said(of->gpu, "remap.uncorrectable"), uncorrectable) ||
                   number_of(said(of->gpu, "remap.pending"), pending) ||
                   number_of(said(of->gpu, "remap.failed"), failed)
               ? NOT_SUPPORTED
               : SUCCESS;
}

int nvmlDeviceGetRowRemapperHistogram(device *of, unsigned to[5]) {
    static const char *const names[] = {"banks.full", "banks.high", "banks.partial", "banks.low", "banks.none"};
    int which;
    ENTER(of);
    for (which = 0; which < 5; which++)
        if (number_of(said(of->gpu, names[which]), &to[which]))
            return NOT_SUPPORTED;
    return SUCCESS;
}

struct sram {
    unsigned version;
    unsigned long long ever_parity, ever_secded, ever_corrected, parity, secded, corrected;
    unsigned long long l2, sm, pcie, microcontroller, other;
    unsigned exceeded;
};

int nvmlDeviceGetSramEccErrorStatus(device *of, struct sram *to) {
    unsigned version = to->version;
    ENTER(of);
    if (version != (sizeof *to | 1u << 24))
        return VERSION_MISMATCH;
    memset(to, 0, sizeof *to);
    to->version = version;
    return wide_of(said(of->gpu, "sram.parity"), &to->ever_parity) ||
                   wide_of(said(of->gpu, "sram.secded"), &to->ever_secded) ||
                   number_of(said(of->gpu, "sram.exceeded"), &to->exceeded)
               ? NOT_SUPPORTED
               : SUCCESS;
}

int nvmlDeviceGetRetiredPages(device *of, unsigned cause, unsigned *count, unsigned long long *pages) {
    unsigned there, page;
    ENTER(of);
    if (number_of(said(of->gpu, cause ? "retired.double" : "retired.single"), &there))
        return NOT_SUPPORTED;
    page = *count;
    *count = there;
    if (page < there && there <= 4096) /* more is a driver that lies, and says nothing of the size */
        return INSUFFICIENT_SIZE;
    for (page = 0; pages && there <= 4096 && page < there; page++)
        pages[page] = 4096ull * page;
    return SUCCESS;
}

NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired.pending")

/* Heat, power, clocks */

NUMBER_BY(nvmlDeviceGetTemperature, "temperature", "")
NUMBER_BY(nvmlDeviceGetTemperatureThreshold, "threshold", "shutdown", "slowdown", "memory", "gpu")

struct margin {
    unsigned version;
    int margin;
};

int nvmlDeviceGetMarginTemperature(device *of, struct margin *to) {
    ENTER(of);
    if (to->version != (sizeof *to | 1u << 24))
        return VERSION_MISMATCH;
    return number_of(said(of->gpu, "margin"), (unsigned *)&to->margin);
}

NUMBER(nvmlDeviceGetPowerUsage, "power")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power.limit")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power.default")
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, "power.least", "power.most")
NUMBER_BY(nvmlDeviceGetClockInfo, "clock", "graphics", "sm", "memory", "video")
NUMBER_BY(nvmlDeviceGetMaxClockInfo, "clock.most", "graphics", "sm", "memory", "video")
NUMBER_BY(nvmlDeviceGetApplicationsClock, "clock.application", "graphics", "sm", "memory", "video")
NUMBER_BY(nvmlDeviceGetDefaultApplicationsClock, "clock.usual", "graphics", "sm", "memory", "video")
WIDE(nvmlDeviceGetCurrentClocksEventReasons, "throttle")
WIDE(nvmlDeviceGetCurrentClocksThrottleReasons, "throttle")
NUMBER(nvmlDeviceGetPerformanceState, "pstate")

int nvmlDeviceGetUtilizationRates(device *of, unsigned to[2]) {
    ENTER(of);
    return number_of(said(of->gpu, "utilization"), &to[0]) || number_of(said(of->gpu, "utilization.memory"), &to[1])
               ? NOT_SUPPORTED
               : SUCCESS;
}

/* Processes: "pid memory, pid memory" */

struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

static int processes(const char *value, unsigned *count, struct process *to) {
    unsigned room = *count, there = 0;
    const char *at;
    if (!value)
        return NOT_SUPPORTED;
    if (!strncmp(value, "many ", 5)) { /* a driver that lies */
        *count = (unsigned)number(value + 5);
        return SUCCESS;
    }
    for (at = value; *at; there++) {
        char *end;
        unsigned long pid = strtoul(at, &end, 10);
        unsigned long long memory = number(end + strspn(end, " "));
        if (to && there < room) {
            memset(&to[there], 0, sizeof *to);
            to[there].pid = (unsigned)pid;
            to[there].memory = memory;
            to[there].gpu_instance = to[there].compute_instance = 0xffffffff;
        }
        at = strchr(end, ',');
        if (!at) {
            there++;
            break;
        }
        at++;
    }
    *count = there;
    return there > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#define PROCESSES(call, key)                                                                                           \
    int call(device *of, unsigned *count, struct process *to) {                                                        \
        ENTER(of);                                                                                                     \
        return processes(said(of->gpu, key), count, to);                                                               \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "processes.compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "processes.graphics")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, "processes.mps")

/* Links */

NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.generation")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.most.generation")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie.most.width")
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie.replays")

static int links_of(device *of, unsigned link) {
    const char *count = said(of->gpu, "nvlink.count");
    return !count ? NOT_SUPPORTED : link < number(count) ? SUCCESS : INVALID_ARGUMENT;
}

#define LINK(call, key)                                                                                                \
    int call(device *of, unsigned link, unsigned *to) {                                                                \
        int code;                                                                                                      \
        ENTER(of);                                                                                                     \
        if ((code = links_of(of, link)))                                                                               \
            return code;                                                                                               \
        return number_of(said_of(of->gpu, "nvlink", link, key), to);                                                   \
    }
LINK(nvmlDeviceGetNvLinkState, "state")
LINK(nvmlDeviceGetNvLinkVersion, "version")
LINK(nvmlDeviceGetNvLinkRemoteDeviceType, "remote")

int nvmlDeviceGetNvLinkErrorCounter(device *of, unsigned link, unsigned counter, unsigned long long *to) {
    static const char *const names[] = {"replay", "recovery", "crc_flit", "crc_data", "ecc_data"};
    int code;
    ENTER(of);
    if ((code = links_of(of, link)))
        return code;
    if (counter >= sizeof names / sizeof *names)
        return INVALID_ARGUMENT;
    return wide_of(said_of(of->gpu, "nvlink", link, names[counter]), to);
}

struct fabric {
    unsigned char cluster[16];
    unsigned status, clique, state;
};
struct fabric_v2 {
    unsigned version;
    struct fabric fabric;
    unsigned health;
};

static int fabric_of(device *of, struct fabric *to) {
    const char *cluster = said(of->gpu, "fabric.cluster");
    unsigned byte;
    if (number_of(said(of->gpu, "fabric.state"), &to->state))
        return NOT_SUPPORTED;
    to->status = to->clique = 0;
    number_of(said(of->gpu, "fabric.status"), &to->status);
    number_of(said(of->gpu, "fabric.clique"), &to->clique);
    memset(to->cluster, 0, sizeof to->cluster);
    for (byte = 0; cluster && byte < 16 && cluster[2 * byte]; byte++)
        sscanf(cluster + 2 * byte, "%2hhx", &to->cluster[byte]);
    return SUCCESS;
}

int nvmlDeviceGetGpuFabricInfo(device *of, struct fabric *to) {
    ENTER(of);
    return fabric_of(of, to);
}

int nvmlDeviceGetGpuFabricInfoV(device *of, struct fabric_v2 *to) {
    ENTER(of);
    if (to->version != (sizeof *to | 2u << 24))
        return VERSION_MISMATCH;
    to->health = 0;
    number_of(said(of->gpu, "fabric.health"), &to->health);
    return fabric_of(of, &to->fabric);
}

int nvmlDeviceGetP2PStatus(device *of, device *other, unsigned index, unsigned *to) {
    int code;
    ENTER(of);
    if ((code = sick(other)) != ANSWER)
        return code;
    if (index > 4)
        return INVALID_ARGUMENT;
    return number_of(said_of(of->gpu, "p2p", (unsigned)other->gpu, ""), to);
}

/* Fields */

struct field {
    uint32_t id, scope;
    int64_t timestamp, latency;
    unsigned type, code;
    union {
        unsigned u;
        unsigned long long ull;
        int i;
    } value;
};

int nvmlDeviceGetFieldValues(device *of, int count, struct field *fields) {
    int at;
    ENTER(of);
    for (at = 0; at < count; at++) {
        struct field *field = &fields[at];
        char key[64];
        const char *value;
        snprintf(key, sizeof key, "field.%u.%u", field->id, field->scope);
        if (!(value = said(of->gpu, key))) {
            snprintf(key, sizeof key, "field.%u", field->id);
            value = said(of->gpu, key);
        }
        field->value.ull = 0;
        field->code = SUCCESS;
        if (!value) {
            field->code = NOT_SUPPORTED;
        } else if (!strncmp(value, "error ", 6)) {
            field->code = (unsigned)atoi(value + 6);
        } else if (*value == '-') {
            field->type = 5; /* signed int */
            field->value.i = (int)number(value);
        } else if (strlen(value) > 9 || (field->id >= 74 && field->id <= 81) || field->id >= 269 ||
                   (field->id >= 161 && field->id <= 163) || (field->id >= 206 && field->id <= 222)) {
            field->type = 3; /* unsigned long long */
            field->value.ull = number(value);
        } else {
            field->type = 1; /* unsigned int */
            field->value.u = (unsigned)number(value);
        }
    }
    return SUCCESS;
}
