package scenarios

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// said returns the lines of the log about GPUs: from the message on, without UUIDs and addresses.
func (s *stage) said() []string {
	var lines []string
	noise := regexp.MustCompile(` (uuid|error|since|pci_bus_id|model)=("[^"]*"|\S+)`)
	for line := range strings.Lines(s.log.String()) {
		_, message, _ := strings.Cut(line, "level=")
		if strings.Contains(message, `"A GPU`) || strings.Contains(message, "MIG layout") {
			lines = append(lines, strings.TrimSpace(noise.ReplaceAllString(message, "")))
		}
	}
	return lines
}

// TestLogOfDevices: what happens to a GPU is a line at its edges, and nothing while it lasts.
func TestLogOfDevices(t *testing.T) {
	for name, tt := range map[string]struct {
		node, faults string
		want         []string
	}{
		"a quiet hour": {node: "demo"},
		"lost and back": {"t4", `faults: [{fault: gpu-lost, at: 10m, for: 20m, devices: ["1"]}]`, []string{
			`WARN msg="A GPU is not read; the others are" gpu=1 reason=lost`,
			`INFO msg="A GPU is read again" gpu=1 after=20m0s reason=lost`,
		}},
		"unbound and bound": {"t4", `faults: [{fault: unbound, at: 10m, for: 20m, devices: ["1"]}]`, []string{
			`WARN msg="A GPU is gone: the driver no longer lists it" gpu=1`,
			`INFO msg="A GPU is there" gpu=1`,
		}},
		"a storm of XIDs is a line in ten minutes": {"demo", `faults: [
			{fault: xid, at: 10m, devices: ["0"], xids: [62, 62, 62, 45, 62]}, {fault: xid, at: 11m, devices: ["0"], xids: [62]},
			{fault: xid, at: 30m, devices: ["0"], xids: [62]}]`, []string{
			`WARN msg="A GPU reported an XID" gpu=0 xid=62 meaning="Internal micro-controller halt" container=trainer namespace=research pod=llm-pretrain-0`,
			`WARN msg="A GPU reported an XID" gpu=0 xid=45 meaning="Preemptive cleanup, due to previous errors" container=trainer namespace=research pod=llm-pretrain-0`,
			`WARN msg="A GPU reported an XID" gpu=0 xid=62 meaning="Internal micro-controller halt" reports=5 container=trainer namespace=research pod=llm-pretrain-0`,
		}},
		"throttled for long": {"single", `faults: [
			{fault: throttle, at: 10m, for: 4m, devices: ["0"], reasons: [hw_thermal]},
			{fault: throttle, at: 30m, for: 15m, devices: ["0"], reasons: [hw_thermal, hw_slowdown]}]`, []string{
			`WARN msg="A GPU has been throttled for long" gpu=0 clock_events="hw_slowdown hw_thermal"`,
			`INFO msg="A GPU is no longer throttled" gpu=0 after=14m50s clock_events="hw_slowdown hw_thermal"`,
		}},
		"partitioned in another way": {"a100-mig", `faults: [{fault: repartition, at: 10m, devices: ["0"], mig: [3g.20gb]}, {fault: repartition, at: 20m, devices: ["0"]}]`, []string{
			`INFO msg="The MIG layout of a GPU changed" gpu=0 was="1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb" is=3g.20gb`,
			`INFO msg="The MIG layout of a GPU changed" gpu=0 was=3g.20gb is="no instances"`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			faults := tt.faults
			if faults == "" {
				faults = "faults: []"
			}
			perform(t, tt.node, faults, func(s *stage) {
				s.at(time.Hour)
				got := s.said()
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			})
		})
	}
}
