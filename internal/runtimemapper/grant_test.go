package runtimemapper

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// node has two GPUs without MIG, whose minor numbers are in reverse order, and one with two instances.
func node() *gpu.Topology {
	gpus := func(id uint32, uuid, bus string, minor uint32) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: id}, GPU: 4 + id, NVMLIndex: id, Minor: minor,
			UUID: uuid, PCIBusID: bus,
		}
	}
	instance := func(id, gi uint32, mig string) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: 2, ID: id},
			GPU:    6, NVMLIndex: 2, Minor: 2, UUID: "GPU-cccc", InstanceID: gi, MIGUUID: mig,
		}
	}
	return gpu.NewTopology([]gpu.Device{
		gpus(0, "GPU-aaaa", "00000000:1B:00.0", 1),
		gpus(1, "GPU-bbbb", "00000000:43:00.0", 0),
		gpus(2, "GPU-cccc", "00000000:5E:00.0", 2),
		instance(14, 1, "MIG-dddd"),
		instance(15, 5, "MIG-eeee"),
		{Entity: gpu.Entity{Kind: gpu.KindNVSwitch, ID: 0}},
	})
}

var rowNames = []string{"0", "1", "2", "2.1", "2.5", "switch"}

// TestGrant checks which device ids are derived from an inspected container.
func TestGrant(t *testing.T) {
	// request returns a request in the form in which docker run writes it.
	request := func(driver string, count int, ids, capabilities string) string {
		return fmt.Sprintf(`"DeviceRequests":[{"Driver":%q,"Count":%d,"DeviceIDs":%s,"Capabilities":%s,"Options":{}}]`,
			driver, count, ids, capabilities)
	}
	gpusAll := request("", -1, "null", `[["gpu"]]`)
	gpusDevices := request("", 0, `["0","GPU-bbbb"]`, `[["gpu"]]`)
	cdi := request("cdi", 0, `["nvidia.com/gpu=0","vendor.com/net=all"]`, "null")
	const none = `"DeviceRequests":null`
	const podmanCDI = none + `,"Devices":[{"PathOnHost":"/dev/nvidia0","PathInContainer":"/dev/nvidia0"},` +
		`{"PathOnHost":"/dev/nvidiactl"},{"PathOnHost":"/dev/nvidia-uvm"}]`
	tests := map[string]struct{ runtime, host, env, want string }{
		"--gpus all":                          {"runc", gpusAll, "", "all"},
		"--gpus all, capability utility":      {"runc", gpusAll, "NVIDIA_DRIVER_CAPABILITIES=utility", ""},
		"--gpus all, compute and utility":     {"runc", gpusAll, "NVIDIA_DRIVER_CAPABILITIES=compute,utility", "all"},
		"--gpus 2":                            {"runc", request("", 2, "null", `[["gpu"]]`), "", "0 1"},
		"--gpus device=":                      {"runc", gpusDevices, "NVIDIA_VISIBLE_DEVICES=all", "0 GPU-bbbb"},
		"a request overrides the environment": {"nvidia", gpusDevices, "NVIDIA_VISIBLE_DEVICES=all", "0 GPU-bbbb"},
		"compose, count: 1":                   {"runc", request("nvidia", 1, "null", `[["gpu"]]`), "", "0"},
		"--device with a CDI name":            {"runc", cdi, "NVIDIA_VISIBLE_DEVICES=void", "0"},
		"a GPU of AMD":                        {"runc", request("", -1, "null", `[["gpu","amd"]]`), "", ""},
		"another driver":                      {"runc", request("other", -1, `["0"]`, `[["tpu"]]`), "", ""},
		"--device /dev/nvidia0, or Podman":    {"oci", podmanCDI, "NVIDIA_VISIBLE_DEVICES=all", "/dev/nvidia0"},
		"--runtime nvidia":                    {"nvidia", none, "NVIDIA_VISIBLE_DEVICES=0, 1,", "0 1"},
		"--runtime nvidia, none":              {"nvidia", none, "NVIDIA_VISIBLE_DEVICES=none", ""},
		"--runtime nvidia, void":              {"nvidia-cdi", none, "NVIDIA_VISIBLE_DEVICES=void", ""},
		"--runtime nvidia, nothing":           {"nvidia", none, "PATH=/bin", ""},
		"a CUDA image without a GPU":          {"runc", none, "NVIDIA_VISIBLE_DEVICES=all", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var c inspected
			const form = `{"Config":{"Env":["A=b",%q]},"HostConfig":{"Runtime":%q,%s}}`
			text := fmt.Sprintf(form, tt.env, tt.runtime, tt.host)
			if err := json.Unmarshal([]byte(text), &c); err != nil {
				t.Fatal(err)
			}
			var words []string
			for _, id := range grant(&c) {
				words = append(words, cmp.Or(id.UUID, map[deviceid.Form]string{
					deviceid.FormAll: "all", deviceid.FormNode: fmt.Sprint("/dev/nvidia", id.Index),
					deviceid.FormNVMLIndex: fmt.Sprint(id.Index),
				}[id.Form]))
			}
			if diff := gocmp.Diff(tt.want, strings.Join(words, " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSelf(t *testing.T) {
	const id = "3f1b2c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f809"
	docker := "/var/lib/docker/containers/" + id
	tests := map[string]struct{ line, want string }{
		"Docker":     {"650 640 8:1 " + docker + "/hostname /etc/hostname rw,relatime - ext4 /dev/sda1 rw", id},
		"Podman":     {"650 640 0:25 /s/overlay-containers/" + id + "/userdata/hosts /etc/hosts rw - tmpfs x rw", id},
		"a host":     {"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw", ""},
		"a volume":   {"650 640 8:1 " + docker + "/x /data rw - ext4 /dev/sda1 rw", ""},
		"Kubernetes": {"650 640 8:1 /var/lib/kubelet/pods/0a1b/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := containerOf([]byte("21 1 0:4 / /proc rw - proc proc rw\n" + tt.line + "\n")); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
