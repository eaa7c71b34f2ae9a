package config

import (
	"strings"
	"testing"
)

// reference lists the flags of NVIDIA's exporter up to 4.8.4, and NODE_NAME.
const reference = `
collectors f config-file address a web-read-timeout web-write-timeout collect-interval c kubernetes k
kubernetes-enable-pod-labels kubernetes-enable-pod-uid kubernetes-gpu-id-type kubernetes-pod-label-allowlist-regex
kubernetes-virtual-gpus kubernetes-enable-dra nvidia-resource-names pod-resources-kubelet-socket use-old-namespace o
devices d switch-devices s cpu-devices p configmap-data m remote-hostengine-info r no-hostname n fake-gpus
web-config-file web-systemd-socket xid-count-window-size x clock-events-count-window-size replace-blanks-in-model-name
rbmn debug log-format enable-dcgm-log dcgm-log-level hpc-job-mapping-dir container-labels container-runtime-socket
dump-enabled dump-directory dump-retention dump-compression disable-startup-validate enable-gpu-bind-unbind-watch
gpu-bind-unbind-poll-interval enable-pprof enable-exporter-metrics max-concurrent-scrapes watch-max-keep-age
watch-max-keep-samples health-require-gpus NODE_NAME
`

// mostOwn limits the number of settings that NVIDIA's exporter does not have.
const mostOwn = 22

func TestSettingsOfNVIDIA(t *testing.T) {
	taken := map[string]bool{}
	for _, name := range strings.Fields(reference) {
		taken[name] = false
	}
	var own []string
	for _, o := range table(&Config{}) {
		known := false
		for _, name := range append(o.names(), o.Variables()...) {
			if _, ok := taken[name]; ok {
				taken[name], known = true, true
			}
		}
		if !known {
			own = append(own, o.ID())
		}
	}
	for name, ok := range taken {
		if !ok {
			t.Errorf("setting %s of NVIDIA's exporter is missing, want every one", name)
		}
	}
	if len(own) > mostOwn {
		t.Errorf("settings that NVIDIA's exporter does not have = %d, want at most %d: %q", len(own), mostOwn, own)
	}
	t.Logf("own settings = %d: %q", len(own), own)
}
