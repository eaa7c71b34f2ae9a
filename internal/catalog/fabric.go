package catalog

// Values of DCGM_FI_DEV_FABRIC_MANAGER_STATUS (dcgmFabricManagerStatus_t): the result of a GPU's registration with its
// fabric.
const (
	FabricNotSupported = 0
	FabricNotStarted   = 1
	FabricInProgress   = 2
	FabricSuccess      = 3
	FabricFailure      = 4
	FabricUnrecognized = 5
	FabricTooOld       = 6 // the driver's NVML is too old to tell
)
