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
 */
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, NOT_LOADED = 9, LOST = 15 };

typedef struct { int whole, instance; } Device;
typedef struct { int taken; } Sample;
typedef struct { unsigned id, result; double value; const char *names[3]; } Metric;
typedef struct { unsigned version, count; Sample *one, *two; Metric metrics[477]; } Ask;
typedef struct { unsigned gpu, memory; } Utilisation;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version, supported; } Support;

static Device whole = {1, 0}, parts[2] = {{0, 3}, {0, 5}};
static int readings, samples;

static int is(const char *name) {
    const char *played = getenv("SIMULATED_NVML");
    return played && !strcmp(played, name);
}
static int gone(void) { return is("lost") && readings > 3; }
static int guard(void) { return gone() ? LOST : is("denied") ? NO_PERMISSION : OK; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; return is("broken") ? NOT_LOADED : OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int error) { (void)error; return "simulated"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = is("empty") ? 0 : is("half") ? 2 : 1; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    *device = &whole; return is("half") && index == 0 ? LOST : OK;
}
int nvmlDeviceGetUUID(Device *device, char *text, unsigned length) {
    strncpy(text, device->whole ? "GPU-0" : device->instance == 3 ? "MIG-3" : "MIG-5", length);
    return OK;
}
int nvmlDeviceGetMigMode(Device *device, unsigned *now, unsigned *pending) {
    (void)device; *now = *pending = is("mig"); return is("ampere") ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
    (void)device; *count = 7; return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **part) {
    (void)device;
    if (index != 1 && index != 4) return NOT_FOUND;
    *part = &parts[index == 4];
    return OK;
}
int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *id) {
    *id = device->instance; return device->whole ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetUtilizationRates(Device *device, Utilisation *rates) {
    (void)device; rates->gpu = 80; rates->memory = 40;
    return is("mig") ? NOT_SUPPORTED : guard();
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
    (void)device; memory->used = 1 << 30; return guard();
}
int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *reasons) {
    (void)device; *reasons = 4; return guard();
}
int nvmlGpmQueryDeviceSupport(Device *device, Support *support) {
    (void)device; support->supported = !is("ampere");
    return is("denied") ? NO_PERMISSION : support->version == 1 ? OK : NOT_SUPPORTED;
}
int nvmlGpmSampleAlloc(Sample **sample) { *sample = calloc(1, sizeof(Sample)); return OK; }
int nvmlGpmSampleFree(Sample *sample) { free(sample); return OK; }
int nvmlGpmSampleGet(Device *device, Sample *sample) {
    (void)device; sample->taken = ++samples; return is("mig") ? NOT_SUPPORTED : guard();
}
int nvmlGpmMigSampleGet(Device *device, unsigned instance, Sample *sample) {
    sample->taken = 100 * instance + ++samples;
    return device->whole && is("mig") ? OK : NOT_SUPPORTED;
}
int nvmlGpmMetricsGet(Ask *ask) {
    if (ask->version != 1 || ask->one->taken >= ask->two->taken) return NOT_SUPPORTED;
    int instance = ask->two->taken / 100;
    for (unsigned place = 0; place < ask->count; place++) {
        Metric *metric = &ask->metrics[place];
        metric->result = metric->id == 60 || metric->id == 61 ? NOT_SUPPORTED : OK;
        metric->value = metric->id == 10 ? (instance ? 10.0 * instance : 62.5)
                      : metric->id == 20 ? 3.0 : 25.0;
    }
    return OK;
}
