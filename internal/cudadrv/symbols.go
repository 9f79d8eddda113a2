package cudadrv

// symbol is a call of the driver.
type symbol int

const (
	symInit symbol = iota
	symDriverGetVersion
	symGetErrorName
	symGetErrorString
	symDeviceGetCount
	symDeviceGet
	symDeviceGetName
	symDeviceGetUUID
	symDeviceGetUUIDv2
	symDeviceGetPCIBusID
	symDeviceTotalMem
	symDeviceGetAttribute
	symDeviceCanAccessPeer
	symDevicePrimaryCtxRetain
	symCtxSetCurrent
	symMemAlloc
	symMemFree
	symMemGetInfo
	symMemGetAddressRange
	symPointerSetAttribute
	symMemHostRegister
	symMemHostUnregister
	symStreamCreate
	symStreamSynchronize
	symStreamDestroy
	symEventCreate
	symEventRecord
	symEventQuery
	symEventSynchronize
	symEventElapsedTime
	symEventDestroy
	symMemcpyHtoDAsync
	symMemcpyDtoHAsync
	symMemcpyDtoDAsync
	symMemcpyBatchAsync
	symIpcGetMemHandle
	symIpcOpenMemHandle
	symIpcCloseMemHandle
	symMemGetAllocationGranularity
	symMemCreate
	symMemRelease
	symMemAddressReserve
	symMemAddressFree
	symMemMap
	symMemUnmap
	symMemSetAccess
	symMemExportToShareableHandle
	symMemImportFromShareableHandle
	symbolCount
)

// symbols gives each call's name in the library, with the version suffix that the headers
// add, and the first driver version that has it, in cuDriverGetVersion's form: 1000 times
// the major version plus 10 times the minor.
var symbols = [symbolCount]struct {
	name  string
	since int
}{
	symInit:                   {"cuInit", 2000},
	symDriverGetVersion:       {"cuDriverGetVersion", 2020},
	symGetErrorName:           {"cuGetErrorName", 6000},
	symGetErrorString:         {"cuGetErrorString", 6000},
	symDeviceGetCount:         {"cuDeviceGetCount", 2000},
	symDeviceGet:              {"cuDeviceGet", 2000},
	symDeviceGetName:          {"cuDeviceGetName", 2000},
	symDeviceGetUUID:          {"cuDeviceGetUuid", 9020},
	symDeviceGetUUIDv2:        {"cuDeviceGetUuid_v2", 11040},
	symDeviceGetPCIBusID:      {"cuDeviceGetPCIBusId", 4010},
	symDeviceTotalMem:         {"cuDeviceTotalMem_v2", 3020},
	symDeviceGetAttribute:     {"cuDeviceGetAttribute", 2000},
	symDeviceCanAccessPeer:    {"cuDeviceCanAccessPeer", 4000},
	symDevicePrimaryCtxRetain: {"cuDevicePrimaryCtxRetain", 7000},
	symCtxSetCurrent:          {"cuCtxSetCurrent", 4000},
	symMemAlloc:               {"cuMemAlloc_v2", 3020},
	symMemFree:                {"cuMemFree_v2", 3020},
	symMemGetInfo:             {"cuMemGetInfo_v2", 3020},
	symMemGetAddressRange:     {"cuMemGetAddressRange_v2", 3020},
	symPointerSetAttribute:    {"cuPointerSetAttribute", 6000},
	symMemHostRegister:        {"cuMemHostRegister_v2", 6050},
	symMemHostUnregister:      {"cuMemHostUnregister", 4000},
	symStreamCreate:           {"cuStreamCreate", 2000},
	symStreamSynchronize:      {"cuStreamSynchronize", 2000},
	symStreamDestroy:          {"cuStreamDestroy_v2", 4000},
	symEventCreate:            {"cuEventCreate", 2000},
	symEventRecord:            {"cuEventRecord", 2000},
	symEventQuery:             {"cuEventQuery", 2000},
	symEventSynchronize:       {"cuEventSynchronize", 2000},
	symEventElapsedTime:       {"cuEventElapsedTime", 2000},
	symEventDestroy:           {"cuEventDestroy_v2", 4000},
	symMemcpyHtoDAsync:        {"cuMemcpyHtoDAsync_v2", 3020},
	symMemcpyDtoHAsync:        {"cuMemcpyDtoHAsync_v2", 3020},
	symMemcpyDtoDAsync:        {"cuMemcpyDtoDAsync_v2", 3020},
	symMemcpyBatchAsync:       {"cuMemcpyBatchAsync", 12080},
	symIpcGetMemHandle:        {"cuIpcGetMemHandle", 4010},
	symIpcOpenMemHandle:       {"cuIpcOpenMemHandle_v2", 11000},
	symIpcCloseMemHandle:      {"cuIpcCloseMemHandle", 4010},

	symMemGetAllocationGranularity:  {"cuMemGetAllocationGranularity", 10020},
	symMemCreate:                    {"cuMemCreate", 10020},
	symMemRelease:                   {"cuMemRelease", 10020},
	symMemAddressReserve:            {"cuMemAddressReserve", 10020},
	symMemAddressFree:               {"cuMemAddressFree", 10020},
	symMemMap:                       {"cuMemMap", 10020},
	symMemUnmap:                     {"cuMemUnmap", 10020},
	symMemSetAccess:                 {"cuMemSetAccess", 10020},
	symMemExportToShareableHandle:   {"cuMemExportToShareableHandle", 10020},
	symMemImportFromShareableHandle: {"cuMemImportFromShareableHandle", 10020},
}
