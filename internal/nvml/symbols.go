package nvml

// symbol is a call of NVML.
type symbol int

const (
	symInit symbol = iota
	symErrorString
	symGetHandleByUUID
	symGetPCIInfo
	symGetArchitecture
	symGetNVLinkState
	symGetNVLinkVersion
	symGetNVLinkRemoteDeviceType
	symGetNVLinkRemotePCIInfo
	symGetP2PStatus
	symGetTopologyCommonAncestor
	symGetCurrPCIeGeneration
	symGetMaxPCIeGeneration
	symGetCurrPCIeWidth
	symGetMaxPCIeWidth
	symbolCount
)

// symbols gives each call's name in the library, with the version suffix that the headers
// add.
var symbols = [symbolCount]string{
	symInit:                      "nvmlInit_v2",
	symErrorString:               "nvmlErrorString",
	symGetHandleByUUID:           "nvmlDeviceGetHandleByUUID",
	symGetPCIInfo:                "nvmlDeviceGetPciInfo_v3",
	symGetArchitecture:           "nvmlDeviceGetArchitecture",
	symGetNVLinkState:            "nvmlDeviceGetNvLinkState",
	symGetNVLinkVersion:          "nvmlDeviceGetNvLinkVersion",
	symGetNVLinkRemoteDeviceType: "nvmlDeviceGetNvLinkRemoteDeviceType",
	symGetNVLinkRemotePCIInfo:    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
	symGetP2PStatus:              "nvmlDeviceGetP2PStatus",
	symGetTopologyCommonAncestor: "nvmlDeviceGetTopologyCommonAncestor",
	symGetCurrPCIeGeneration:     "nvmlDeviceGetCurrPcieLinkGeneration",
	symGetMaxPCIeGeneration:      "nvmlDeviceGetMaxPcieLinkGeneration",
	symGetCurrPCIeWidth:          "nvmlDeviceGetCurrPcieLinkWidth",
	symGetMaxPCIeWidth:           "nvmlDeviceGetMaxPcieLinkWidth",
}
