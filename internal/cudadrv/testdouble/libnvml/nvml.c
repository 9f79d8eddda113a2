/* Stands in for libnvidia-ml.so.1 in tests: the calls that kvbench makes, with NVML's
 * names, signatures and error codes. It sees the devices of the libcuda double, by the
 * same UUIDs, whatever CUDA_VISIBLE_DEVICES hides.
 *
 * The environment:
 *   CUDA_DOUBLE_DEVICES=N            devices, 2
 *   NVML_DOUBLE_LINKS=0-1:4,0-s:18   NVLinks that are up: of a device, to another, to a
 *                                    switch (s), or to what NVML does not name (u); none
 *   NVML_DOUBLE_NVLINK=N             what nvmlDeviceGetNvLinkVersion says, 7
 *   NVML_DOUBLE_ARCHITECTURE=N       NVML_DEVICE_ARCH, 9
 *   NVML_DOUBLE_P2P=N                nvmlGpuP2PStatus_t of NVLink, 0: devices reach each other over it
 *   NVML_DOUBLE_TOPOLOGY=N           nvmlGpuTopologyLevel_t between any two, 50
 *   NVML_DOUBLE_PCIE=1/5x8/16,...    generation/highest x lanes/most of each device; 1/4x16/16
 *   NVML_DOUBLE_FAIL=CALL:CODE,...   CALL returns CODE
 * Built with -DOLD_DRIVER it lacks nvmlDeviceGetNvLinkRemoteDeviceType.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SUCCESS = 0,
	UNINITIALIZED = 1,
	INVALID_ARGUMENT = 2,
	NOT_SUPPORTED = 3,
	NOT_FOUND = 6,
};

enum { PHYSICAL_LINKS = 18, NVLINK_CAPABILITY = 2 };

typedef int nvmlReturn_t;
typedef struct device *nvmlDevice_t;

struct pci_info {
	char legacy[16];
	unsigned int domain, bus, device, device_id, subsystem_id;
	char id[32];
};

static int initialized;

static unsigned int number(const char *name, unsigned int otherwise)
{
	const char *v = getenv(name);
	return v && *v ? (unsigned int)strtoul(v, NULL, 10) : otherwise;
}

static int devices(void) { return (int)number("CUDA_DOUBLE_DEVICES", 2); }

/* Handles are numbers of devices, from 1 on. */
static int valid(nvmlDevice_t d)
{
	return (size_t)d >= 1 && (size_t)d <= (size_t)devices();
}

static int index_of(nvmlDevice_t d) { return (int)(size_t)d - 1; }

/* asked returns the code that NVML_DOUBLE_FAIL gives a call. */
static nvmlReturn_t asked(const char *call)
{
	size_t length = strlen(call);
	for (const char *at = getenv("NVML_DOUBLE_FAIL"); at && *at;) {
		if (strncmp(at, call, length) == 0 && at[length] == ':')
			return atoi(at + length + 1);
		at = strchr(at, ',');
		at = at ? at + 1 : NULL;
	}
	return initialized || strcmp(call, "nvmlInit_v2") == 0 ? SUCCESS : UNINITIALIZED;
}

#define ENTER(call)                                                            \
	do {                                                                   \
		nvmlReturn_t code = asked(call);                               \
		if (code != SUCCESS)                                           \
			return code;                                           \
	} while (0)

#define ENTER_WITH_DEVICE(call, d)                                             \
	do {                                                                   \
		ENTER(call);                                                   \
		if (!valid(d))                                                 \
			return INVALID_ARGUMENT;                               \
	} while (0)

nvmlReturn_t nvmlInit_v2(void)
{
	ENTER("nvmlInit_v2");
	initialized = 1;
	return SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t code)
{
	switch (code) {
	case SUCCESS: return "Success";
	case UNINITIALIZED: return "Uninitialized";
	case INVALID_ARGUMENT: return "Invalid Argument";
	case NOT_SUPPORTED: return "Not Supported";
	case NOT_FOUND: return "Not Found";
	case 9: return "Driver Not Loaded";
	case 15: return "GPU is lost";
	}
	return "Unknown Error";
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
	ENTER("nvmlDeviceGetHandleByUUID");
	for (int i = 0; i < devices(); i++) {
		/* "kvbench double", a zero, and the number, as libcuda/device.c has it */
		char own[64];
		snprintf(own, sizeof own, "GPU-6b766265-6e63-6820-646f-75626c6500%02x", i);
		if (strcmp(uuid, own) == 0) {
			*out = (nvmlDevice_t)(size_t)(i + 1);
			return SUCCESS;
		}
	}
	return NOT_FOUND;
}

static void place(struct pci_info *out, unsigned int domain, unsigned int bus)
{
	memset(out, 0, sizeof *out);
	out->domain = domain;
	out->bus = bus;
	snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:00.0", domain & 0xffff, bus & 0xff);
	snprintf(out->id, sizeof out->id, "%08X:%02X:00.0", domain, bus);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, struct pci_info *out)
{
	ENTER_WITH_DEVICE("nvmlDeviceGetPciInfo_v3", d);
	place(out, 0, 0x10 + (unsigned int)index_of(d));
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t d, unsigned int *out)
{
	ENTER_WITH_DEVICE("nvmlDeviceGetArchitecture", d);
	*out = number("NVML_DOUBLE_ARCHITECTURE", 9);
	return SUCCESS;
}

/* other is what a device's link leads to: the number of a device, 's' or 'u', or -1
 * where the link is down. */
static int other(int device, unsigned int link)
{
	unsigned int before = 0;
	for (const char *at = getenv("NVML_DOUBLE_LINKS"); at && *at;) {
		char a = at[0], b = at[2];
		unsigned int count = (unsigned int)strtoul(at + 4, NULL, 10);
		if (a - '0' == device || b - '0' == device) {
			char end = a - '0' == device ? b : a;
			if (link < before + count)
				return end == 's' || end == 'u' ? end : end - '0';
			before += count;
		}
		at = strchr(at, ',');
		at = at ? at + 1 : NULL;
	}
	return -1;
}

/* As drivers do: a GPU without NVLink does not support the call, and one with them
 * refuses links that it lacks. */
static nvmlReturn_t has(unsigned int link)
{
	if (!getenv("NVML_DOUBLE_LINKS"))
		return NOT_SUPPORTED;
	return link < PHYSICAL_LINKS ? SUCCESS : INVALID_ARGUMENT;
}

#define ENTER_WITH_LINK(call, d, link)                                         \
	do {                                                                   \
		ENTER_WITH_DEVICE(call, d);                                    \
		nvmlReturn_t lacking = has(link);                              \
		if (lacking != SUCCESS)                                        \
			return lacking;                                        \
	} while (0)

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t d, unsigned int link, unsigned int *out)
{
	ENTER_WITH_LINK("nvmlDeviceGetNvLinkState", d, link);
	*out = other(index_of(d), link) >= 0;
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t d, unsigned int link, unsigned int *out)
{
	ENTER_WITH_LINK("nvmlDeviceGetNvLinkVersion", d, link);
	*out = number("NVML_DOUBLE_NVLINK", 7);
	return SUCCESS;
}

#ifndef OLD_DRIVER
nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t d, unsigned int link, unsigned int *out)
{
	ENTER_WITH_LINK("nvmlDeviceGetNvLinkRemoteDeviceType", d, link);
	switch (other(index_of(d), link)) {
	case -1: return NOT_SUPPORTED;
	case 's': *out = 2; break;
	case 'u': *out = 255; break;
	default: *out = 0;
	}
	return SUCCESS;
}
#endif

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned int link, struct pci_info *out)
{
	ENTER_WITH_LINK("nvmlDeviceGetNvLinkRemotePciInfo_v2", d, link);
	int end = other(index_of(d), link);
	if (end < 0)
		return NOT_SUPPORTED;
	if (end == 's')
		place(out, 0, 0xf0);
	else if (end == 'u')
		place(out, 0xffffffff, 0xff); /* as in a virtual machine, to which the switch is not passed */
	else
		place(out, 0, 0x10 + (unsigned int)end);
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t d, nvmlDevice_t peer, unsigned int capability, unsigned int *out)
{
	ENTER_WITH_DEVICE("nvmlDeviceGetP2PStatus", d);
	if (!valid(peer) || capability != NVLINK_CAPABILITY)
		return INVALID_ARGUMENT;
	*out = number("NVML_DOUBLE_P2P", 0);
	return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t d, nvmlDevice_t peer, unsigned int *out)
{
	ENTER_WITH_DEVICE("nvmlDeviceGetTopologyCommonAncestor", d);
	if (!valid(peer))
		return INVALID_ARGUMENT;
	*out = number("NVML_DOUBLE_TOPOLOGY", 50);
	return SUCCESS;
}

struct pcie {
	unsigned int generation, max_generation, width, max_width;
};

/* pcie reads a device's entry; the last stands for those after it. */
static struct pcie pcie(int device)
{
	struct pcie p = {1, 4, 16, 16};
	const char *at = getenv("NVML_DOUBLE_PCIE");
	for (int i = 0; at && i <= device; i++) {
		sscanf(at, "%u/%ux%u/%u", &p.generation, &p.max_generation, &p.width, &p.max_width);
		at = strchr(at, ',');
		at = at ? at + 1 : NULL;
	}
	return p;
}

#define PCIE_CALL(call, field)                                                 \
	nvmlReturn_t call(nvmlDevice_t d, unsigned int *out)                   \
	{                                                                      \
		ENTER_WITH_DEVICE(#call, d);                                   \
		*out = pcie(index_of(d)).field;                                \
		return SUCCESS;                                                \
	}

PCIE_CALL(nvmlDeviceGetCurrPcieLinkGeneration, generation)
PCIE_CALL(nvmlDeviceGetMaxPcieLinkGeneration, max_generation)
PCIE_CALL(nvmlDeviceGetCurrPcieLinkWidth, width)
PCIE_CALL(nvmlDeviceGetMaxPcieLinkWidth, max_width)
