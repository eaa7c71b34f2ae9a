// Package accounting divides shared GPUs among their owners.
//
// Its Accountant is a snapshot.Deriver. From the devices' own values, the owners that the
// attributors reported and the processes that the source reported, it makes the dcgm_pod_gpu_*
// families, the remainder that belongs to no pod (dcgm_gpu_unattributed_*), and the reasons for
// what is not known. The pods of an entity and its remainder add up to the device's own value.
//
// Accounts outlive sessions and end with their owners. The package reads no file and calls no
// driver.
package accounting
