/* Start, devices, contexts, and errors on demand. */
#include "double.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings settings;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int initialized;
static struct context primary[MAX_DEVICES];
static __thread CUcontext bound;

static long number(const char *name, long otherwise)
{
	const char *v = getenv(name);
	return v && *v ? strtol(v, NULL, 10) : otherwise;
}

static void see_devices(int count)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	if (!list) {
		for (int i = 0; i < count; i++)
			settings.physical[settings.visible++] = i;
		return;
	}
	while (*list) {
		char *end;
		long i = strtol(list, &end, 10);
		if (end == list || i < 0 || i >= count)
			return; /* as with the driver: nothing after an invalid one */
		settings.physical[settings.visible++] = (int)i;
		list = *end == ',' ? end + 1 : end;
	}
}

/* bits reads a list of numbers below MAX_DEVICES. */
static unsigned bits(const char *list)
{
	unsigned all = 0;
	while (list && *list) {
		char *end;
		long i = strtol(list, &end, 10);
		if (end == list || i < 0 || i >= MAX_DEVICES)
			break;
		all |= 1u << i;
		list = *end == ',' ? end + 1 : end;
	}
	return all;
}

static void start(void)
{
	int count = (int)number("CUDA_DOUBLE_DEVICES", 2);
	see_devices(count < MAX_DEVICES ? count : MAX_DEVICES);
	settings.mig = (int)number("CUDA_DOUBLE_MIG", 0);
	settings.peers = (int)number("CUDA_DOUBLE_PEERS", 1);
	settings.driver = (int)number("CUDA_DOUBLE_DRIVER", 12080);
	settings.delay_us = (int)number("CUDA_DOUBLE_DELAY_US", 200);
	settings.corrupt = (int)number("CUDA_DOUBLE_CORRUPT", 0);
	settings.copy_rate = number("CUDA_DOUBLE_COPY_RATE", 0);
	const char *trace = getenv("CUDA_DOUBLE_TRACE");
	settings.trace = trace ? open(trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
	settings.hold = getenv("CUDA_DOUBLE_HOLD");
	settings.memory = (size_t)number("CUDA_DOUBLE_MEMORY", 2L << 30);
	settings.no_legacy = bits(getenv("CUDA_DOUBLE_NO_LEGACY"));
	settings.vmm = (int)number("CUDA_DOUBLE_VMM", 1);
	settings.fds = (int)number("CUDA_DOUBLE_FDS", 1);
	settings.strict = (int)number("CUDA_DOUBLE_STRICT", 0);
	settings.reachable = (int)number("CUDA_DOUBLE_REACHABLE", 0);
	for (int i = 0; i < settings.visible; i++)
		primary[i].device = i;
}

/* asked returns the code that CUDA_DOUBLE_FAIL gives this use of a call. */
static CUresult asked(const char *call)
{
	static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
	static int uses[64];
	const char *at = getenv("CUDA_DOUBLE_FAIL");
	size_t length = strlen(call);
	for (int entry = 0; at && *at && entry < 64; entry++) {
		if (strncmp(at, call, length) == 0 && at[length] == ':') {
			int nth = 0, code = 0;
			sscanf(at + length, ":%d:%d", &nth, &code);
			pthread_mutex_lock(&mu);
			int use = ++uses[entry];
			pthread_mutex_unlock(&mu);
			if (nth == 0 || nth == use)
				return code;
		}
		at = strchr(at, ',');
		at = at ? at + 1 : NULL;
	}
	return SUCCESS;
}

CUresult enter(const char *call)
{
	pthread_once(&once, start);
	CUresult code = asked(call);
	if (code != SUCCESS)
		return code;
	if (!initialized && strcmp(call, "cuInit") != 0 && strcmp(call, "cuDriverGetVersion") != 0)
		return NOT_INITIALIZED;
	return SUCCESS;
}

CUcontext current(void) { return bound; }

CUresult cuInit(unsigned int flags)
{
	ENTER("cuInit");
	if (flags != 0)
		return INVALID_VALUE;
	if (settings.visible == 0)
		return NO_DEVICE;
	initialized = 1;
	return SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
	ENTER("cuDriverGetVersion");
	*version = settings.driver;
	return SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
	ENTER("cuDeviceGetCount");
	*count = settings.visible;
	return SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	ENTER("cuDeviceGet");
	if (ordinal < 0 || ordinal >= settings.visible)
		return INVALID_DEVICE;
	*device = ordinal;
	return SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
	ENTER("cuDeviceGetName");
	if (device < 0 || device >= settings.visible)
		return INVALID_DEVICE;
	snprintf(name, (size_t)size, "Test double %d", settings.physical[device]);
	return SUCCESS;
}

/* The UUID tells the number of the device, in its last byte, and of the instance. */
static CUresult uuid(unsigned char out[16], CUdevice device, int instance)
{
	if (device < 0 || device >= settings.visible)
		return INVALID_DEVICE;
	memcpy(out, "kvbench double", 14);
	out[14] = (unsigned char)instance;
	out[15] = (unsigned char)settings.physical[device];
	return SUCCESS;
}

CUresult cuDeviceGetUuid(unsigned char *out, CUdevice device)
{
	ENTER("cuDeviceGetUuid");
	return uuid(out, device, 0);
}

#ifndef OLD_DRIVER

CUresult cuDeviceGetUuid_v2(unsigned char *out, CUdevice device)
{
	ENTER("cuDeviceGetUuid_v2");
	return uuid(out, device, settings.mig);
}

#endif

CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice device)
{
	ENTER("cuDeviceGetPCIBusId");
	if (device < 0 || device >= settings.visible)
		return INVALID_DEVICE;
	snprintf(id, (size_t)size, "0000:%02X:00.0", 0x10 + settings.physical[device]);
	return SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	ENTER("cuDeviceTotalMem_v2");
	if (device < 0 || device >= settings.visible)
		return INVALID_DEVICE;
	*bytes = settings.memory;
	return SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	ENTER("cuDeviceGetAttribute");
	if (device < 0 || device >= settings.visible)
		return INVALID_DEVICE;
	switch (attribute) {
	case 102: /* VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
		*value = settings.vmm;
		return SUCCESS;
	case 103: /* HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED */
		*value = settings.vmm && settings.fds;
		return SUCCESS;
	}
	return INVALID_VALUE;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	ENTER("cuDeviceCanAccessPeer");
	if (device < 0 || device >= settings.visible || peer < 0 || peer >= settings.visible)
		return INVALID_DEVICE;
	*can = device != peer && settings.peers;
	return SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	ENTER("cuDevicePrimaryCtxRetain");
	if (device < 0 || device >= settings.visible)
		return INVALID_DEVICE;
	*context = &primary[device];
	return SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
	ENTER("cuCtxSetCurrent");
	if (context && (context < primary || context >= primary + settings.visible))
		return INVALID_CONTEXT;
	bound = context;
	return SUCCESS;
}

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
	{SUCCESS, "CUDA_SUCCESS", "no error"},
	{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{MAPPING_FAILED, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
	{PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
	{INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
	{NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
	{ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	{ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
	{NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
	{NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

static CUresult describe(CUresult code, const char **out, int text)
{
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == code) {
			*out = text ? errors[i].text : errors[i].name;
			return SUCCESS;
		}
	*out = NULL;
	return INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult code, const char **out) { return describe(code, out, 0); }

CUresult cuGetErrorString(CUresult code, const char **out) { return describe(code, out, 1); }
