// Package accounting divides shared GPUs among their owners.
//
// Its Accountant is a snapshot.Deriver. It combines the devices' own values, the owners that attributors reported and
// the processes that the source reported. It makes the dcgm_pod_gpu_* families, the remainder that belongs to no pod
// (dcgm_gpu_unattributed_*), and the reasons for what is unknown. The shares of the pods and the remainder add up to
// the device's own value.
//
// Accounts outlive sessions and end with their owners. The package reads no files and calls no driver.
package accounting
