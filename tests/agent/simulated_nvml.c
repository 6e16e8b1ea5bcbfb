/* A stand-in for libnvidia-ml.so.1 that plays one machine, chosen by SIMULATED_NVML:
 *
 *   hopper  one device with GPM; DRAM busy 62.5 %, no NVLink
 *   ampere  one device without GPM
 *   mig     one Hopper in MIG mode with instances 3 and 5; no utilisation
 *   denied  a device that tells a user without rights nothing but its name
 *   lost    a Hopper that falls off the bus after the third reading of its power
 *   half    a Hopper, and before it a device that had been lost when the driver was asked
 *   empty   a driver without a device
 *   broken  a driver whose kernel module is not loaded
 *   reset   a Hopper that answers nothing after the third reading of its power, until the driver
 *           is opened anew by all who had it open
 *   remig   mig, and after the third reading of the whole device's power 7 stands for 3
 *   grow    a Hopper, and after the third reading of its power a second one
 *   poor    a Hopper whose driver has room for one GPM sample and no more
 *   shared  a Hopper without memory of its own, whose memory counters have not run
 *
 * simulated_samples and simulated_opens say what is not given back.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, NOT_LOADED = 9,
    LOST = 15, MEMORY = 20, UNKNOWN = 999
};

typedef struct { int whole, instance; } Device;
typedef struct { int taken; } Sample;
typedef struct { unsigned id, result; double value; const char *names[3]; } Metric;
typedef struct { unsigned version, count; Sample *one, *two; Metric metrics[477]; } Ask;
typedef struct { unsigned gpu, memory; } Utilisation;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version, supported; } Support;

static Device wholes[2] = {{1, 0}, {2, 0}}, parts[3] = {{0, 3}, {0, 5}, {0, 7}};
static int readings, samples, held, opens, generation;

static int is(const char *name) {
    const char *played = getenv("SIMULATED_NVML");
    return played && !strcmp(played, name);
}
static int later(const char *name) { return is(name) && readings > 3; }
static int split(void) { return is("mig") || is("remig"); }
static int stale(void) { return later("reset") && generation == 1; }
static int guard(void) {
    return later("lost") ? LOST : stale() ? UNKNOWN : is("denied") ? NO_PERMISSION : OK;
}
static int there(Device *device) {
    return device->instance == (later("remig") ? 3 : 7) ? INVALID : guard();
}

int simulated_samples(void) { return held; }
int simulated_opens(void) { return opens; }

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (is("broken")) return NOT_LOADED;
    if (!opens++) generation++;
    return OK;
}
int nvmlShutdown(void) { opens--; return OK; }
const char *nvmlErrorString(int error) { (void)error; return "simulated"; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = is("empty") ? 0 : is("half") || later("grow") ? 2 : 1;
    return stale() ? UNKNOWN : OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    *device = &wholes[is("grow") && index]; return is("half") && index == 0 ? LOST : OK;
}
int nvmlDeviceGetUUID(Device *device, char *text, unsigned length) {
    const char *whole = device->whole == 1 ? "GPU-0" : "GPU-1";
    const char *part = device->instance == 3 ? "MIG-3" : device->instance == 5 ? "MIG-5" : "MIG-7";
    strncpy(text, device->whole ? whole : part, length);
    return OK;
}
int nvmlDeviceGetMigMode(Device *device, unsigned *now, unsigned *pending) {
    (void)device; *now = *pending = split(); return is("ampere") ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
    (void)device; *count = 7; return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **part) {
    (void)device;
    if (index != 1 && index != 4) return NOT_FOUND;
    *part = &parts[index == 4 ? 1 : later("remig") ? 2 : 0];
    return OK;
}
int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *id) {
    *id = device->instance; return device->whole ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetUtilizationRates(Device *device, Utilisation *rates) {
    (void)device; rates->gpu = 80; rates->memory = 40;
    return split() ? NOT_SUPPORTED : guard();
}
int nvmlDeviceGetClockInfo(Device *device, int type, unsigned *mhz) {
    (void)device; *mhz = type == 1 ? 1755 : 2619; return guard();
}
int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) {
    (void)device; readings++; *milliwatts = 412500; return guard();
}
int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *millijoules) {
    (void)device; *millijoules = 5000; return guard();
}
int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    memory->used = is("shared") ? ~0ULL : 1 << 30; return there(device);
}
int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *reasons) {
    (void)device; *reasons = 4; return guard();
}
int nvmlGpmQueryDeviceSupport(Device *device, Support *support) {
    (void)device; support->supported = !is("ampere");
    return is("denied") ? NO_PERMISSION : support->version == 1 ? OK : NOT_SUPPORTED;
}
int nvmlGpmSampleAlloc(Sample **sample) {
    if (is("poor") && held) return MEMORY;
    *sample = calloc(1, sizeof(Sample)); held++; return OK;
}
int nvmlGpmSampleFree(Sample *sample) { free(sample); held--; return guard(); }
int nvmlGpmSampleGet(Device *device, Sample *sample) {
    (void)device; sample->taken = ++samples; return split() ? NOT_SUPPORTED : guard();
}
int nvmlGpmMigSampleGet(Device *device, unsigned instance, Sample *sample) {
    sample->taken = 100 * instance + ++samples;
    Device part = {0, instance};
    return device->whole && split() ? there(&part) : NOT_SUPPORTED;
}
int nvmlGpmMetricsGet(Ask *ask) {
    if (ask->version != 1 || ask->one->taken >= ask->two->taken) return NOT_SUPPORTED;
    int instance = ask->two->taken / 100;
    for (unsigned place = 0; place < ask->count; place++) {
        Metric *metric = &ask->metrics[place];
        metric->result = metric->id == 60 || metric->id == 61 ? NOT_SUPPORTED : OK;
        metric->value = metric->id == 10 ? (instance ? 10.0 * instance : 62.5)
                      : metric->id == 20 ? 3.0 : 25.0;
        if (is("shared") && metric->id == 10) metric->value = NAN;
    }
    return OK;
}
