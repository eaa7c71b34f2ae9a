//go:build linux && cgo

package nvml_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The fields of links, and one of GPUs.
var linkFields = []gpu.FieldID{100, 1508, 1509, 1525, 1526, 1527, 1528, 1529, 1530, 1531}

// Links have rows of their own, the identity of their GPU and its number of them; those that are
// down are there and say so.
func TestLinks(t *testing.T) {
	src, _ := source(t, "gpus 2", "gpu 0 set nvlinks 3", "gpu 0 set nvlink.1 -", "gpu 0 set nvlink.2 down", "gpu 1 set nvlinks 0",
		"gpu 0 set nvlink-error.0.2 10", "gpu 0 set nvlink-error.1.2 11", "gpu 0 set nvlink-error.2.2 12", "gpu 0 set nvlink-error.3.2 13")
	plan := planOf(t, linkFields...)
	s := open(t, src, plan)
	devices := s.Topology().Devices
	link := devices[0]
	link.Entity, link.Link = gpu.Entity{Kind: gpu.KindNVLink, ID: 2, ParentKind: gpu.KindGPU}, 2
	if len(devices) != 4 {
		t.Fatalf("entities %v, want 2 GPUs and 2 links", devices)
	}
	if diff := cmp.Diff(link, devices[2]); diff != "" {
		t.Errorf("link 2 of GPU 0 (-want +got):\n%s", diff)
	}
	got := read(t, s, plan)
	want := map[string]string{
		"DCGM_FI_DEV_NVLINK_GET_STATE":                     "0",
		"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL": "12",
		"DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_PER_LINK_TOTAL": "13",
		"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_PER_LINK_TOTAL":   "10",
		"DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_PER_LINK_TOTAL": "11",
		"DCGM_FI_DEV_NVLINK_PPCNT_IBPC_PORT_XMIT_WAIT":     "fault:not_supported",
	}
	if diff := cmp.Diff(want, only(got, "NVLink 2 of GPU 0")); diff != "" {
		t.Errorf("link 2 (-want +got):\n%s", diff)
	}
	if up := got["NVLink 0 of GPU 0 DCGM_FI_DEV_NVLINK_GET_STATE"]; up != "1" {
		t.Errorf("link 0 has state %q, want 1", up)
	}
	if diff := cmp.Diff(map[string]string{"DCGM_FI_DEV_SM_CLOCK": "1980"}, only(got, "GPU 0")); diff != "" {
		t.Errorf("GPU 0 (-want +got):\n%s", diff)
	}
}

// The errors of a link are in the GPU's field of that number, whatever its id. A link that the GPU
// has not is not supported, and not an error of each Read.
func TestLinkErrorsOfGPU(t *testing.T) {
	kinds := []string{"REPLAY", "RECOVERY", "CRC_FLIT", "CRC_DATA"} // in NVML's order
	script := []string{"gpus 1", "gpu 0 set nvlinks 17"}
	want := map[string]string{}
	var ids []gpu.FieldID
	for number, name := range kinds {
		for link := range 18 {
			field := fmt.Sprintf("DCGM_FI_DEV_NVLINK_%s_ERROR_COUNT_L%d", name, link)
			ids = append(ids, fieldOf(t, field))
			script = append(script, fmt.Sprintf("gpu 0 set nvlink-error.%d.%d %d", number, link, 100*number+link))
			want[field] = fmt.Sprint(100*number + link)
			if link == 17 {
				want[field] = "fault:not_supported"
			}
		}
	}
	src, world := source(t, script...)
	plan := planOf(t, ids...)
	s := open(t, src, plan)
	for range 2 {
		if diff := cmp.Diff(want, only(read(t, s, plan), "GPU 0")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if n := world.Ledger(t)["nvmlDeviceGetNvLinkErrorCounter"]; n != 2*4*17+4 {
		t.Errorf("%d calls for 68 counters twice and 4 that are not there once", n)
	}
	world.Play(t, "gpus 1", "fail nvmlDeviceGetNvLinkErrorCounter 2") // a driver that knows fewer links
	if got := read(t, s, plan)["GPU 0 DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L0"]; got != "fault:not_supported" {
		t.Errorf("an invalid link gave %q", got)
	}
}

// The counters of a link's port are of the port one above the link's number, a call for each
// register; a register of which a counter is missing reports the rest.
func TestPortCounters(t *testing.T) {
	script := []string{"gpus 1", "gpu 0 set nvlinks 2", "gpu 0 set ports 1", "gpu 0 set port.2.103 -"}
	want := map[string]string{}
	var ids []gpu.FieldID
	for field, counter := range map[string]int{
		"PPRM_OPER_RECOVERY": 1001, "PPCNT_RECOVERY_TIME_SINCE_LAST": 102, "PPCNT_RECOVERY_TIME_BETWEEN_LAST_TWO": 103,
		"PPCNT_RECOVERY_TOTAL_SUCCESSFUL_EVENTS": 101, "PPCNT_PHYSICAL_SUCCESSFUL_RECOVERY_EVENTS": 2, "PPCNT_PHYSICAL_LINK_DOWN_COUNTER": 1,
	} {
		field = "DCGM_FI_DEV_NVLINK_" + field
		ids = append(ids, fieldOf(t, field))
		want[field] = fmt.Sprint(counter)
		if counter == 103 {
			want[field] = "fault:not_supported"
			continue
		}
		script = append(script, fmt.Sprintf("gpu 0 set port.2.%d %d", counter, counter))
	}
	src, world := source(t, script...)
	plan := planOf(t, ids...)
	s := open(t, src, plan)
	if diff := cmp.Diff(want, only(read(t, s, plan), "NVLink 1 of GPU 0")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := world.Ledger(t)["nvmlDeviceReadPRMCounters_v1"]; n != 6 {
		t.Errorf("%d calls for 3 registers of 2 links", n)
	}
}

// Before Blackwell no port has counters, which is asked slowly, as what is not supported always is.
func TestNoPortCounters(t *testing.T) {
	src, world := source(t, "gpus 1", "gpu 0 set nvlinks 1")
	plan := planOf(t, 580, fieldOf(t, "DCGM_FI_DEV_NVLINK_PPCNT_PHYSICAL_LINK_DOWN_COUNTER"))
	s := open(t, src, plan)
	for range 3 {
		for field, value := range only(read(t, s, plan), "NVLink 0 of GPU 0") {
			if value != "fault:not_supported" {
				t.Errorf("%s = %q", field, value)
			}
		}
	}
	if n := world.Ledger(t)["nvmlDeviceReadPRMCounters_v1"]; n != 2 {
		t.Errorf("%d calls, want one for each of 2 registers", n)
	}
}

// fieldOf returns the id of a name of the catalog.
func fieldOf(t *testing.T, name string) gpu.FieldID {
	t.Helper()
	named, ok := catalog.Lookup(name)
	if !ok {
		t.Fatalf("the catalog has no %s", name)
	}
	return named.Entry.ID
}

// Links are rows only if a field asks for them, and their GPU is selected.
func TestLinksNotAskedFor(t *testing.T) {
	for name, change := range map[string]func(*gpu.Plan){
		"no field of links":    func(p *gpu.Plan) { p.Fields = p.Fields[:1] },
		"another GPU selected": func(p *gpu.Plan) { p.Devices = gpu.Selector{Major: true, MajorIDs: []uint32{1}} },
	} {
		t.Run(name, func(t *testing.T) {
			src, world := source(t, "gpus 2", "gpu 1 set nvlinks 0")
			plan := planOf(t, linkFields...)
			change(plan)
			for _, d := range open(t, src, plan).Topology().Devices {
				if d.Entity.Kind != gpu.KindGPU {
					t.Errorf("%v is an entity", d.Entity)
				}
			}
			if n := world.Ledger(t)["nvmlDeviceGetNvLinkState"]; n > 36 {
				t.Errorf("links were asked for %d times", n)
			}
		})
	}
}

// A link's rate counts what came, what went, or both, in KiB per second over 1,000.
func TestRatePerLink(t *testing.T) {
	at := func(second int, rx, tx uint64) []string {
		return []string{
			"gpus 1", "gpu 0 set nvlinks 4",
			fmt.Sprintf("gpu 0 set field-time %d", 1_700_000_000_000_000+second*1_000_000),
			fmt.Sprintf("gpu 0 set field.139.3 %d", rx), fmt.Sprintf("gpu 0 set field.138.3 %d", tx),
			fmt.Sprintf("gpu 0 set field.139 %d", 4*rx), fmt.Sprintf("gpu 0 set field.138 %d", 4*tx),
		}
	}
	src, world := source(t, at(0, 1_000_000, 2_000_000)...)
	plan := planOf(t, 1529, 1530, 1531, 843, 882, 897)
	s := open(t, src, plan)
	read(t, s, plan)
	world.Play(t, at(2, 3_000_000, 8_000_000)...)
	got := read(t, s, plan)
	want := map[string]string{
		"DCGM_FI_DEV_NVLINK_THROUGHPUT_PER_LINK": "4000", "DCGM_FI_DEV_NVLINK_TX_THROUGHPUT_PER_LINK": "3000",
		"DCGM_FI_DEV_NVLINK_RX_THROUGHPUT_PER_LINK": "1000",
	}
	if diff := cmp.Diff(want, only(got, "NVLink 3 of GPU 0")); diff != "" {
		t.Errorf("link 3 (-want +got):\n%s", diff)
	}
	want = map[string]string{
		"DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_TOTAL": "12000", "DCGM_FI_DEV_NVLINK_RX_BANDWIDTH_TOTAL": "4000", "DCGM_FI_DEV_NVLINK_RX_BANDWIDTH_L3": "1000",
	}
	if diff := cmp.Diff(want, only(got, "GPU 0")); diff != "" {
		t.Errorf("GPU 0 (-want +got):\n%s", diff)
	}
	// Both counters where both ways count, and one where one does.
	if n := world.Ledger(t)["field-values"]; n != 2*(4*4+3) {
		t.Errorf("%d counters were asked for in two Reads of 4 links and their GPU", n)
	}
}

// What GPM reports of a link is in the samples of its GPU; where there is no GPM, the link has a
// fault.
func TestProfilingPerLink(t *testing.T) {
	src, _ := source(t, "gpus 2", "gpu 0 set nvlinks 20", "gpu 1 set nvlinks 1", "gpu 1 set gpm 0", "gpu 0 set gpm.213 3")
	plan := planOf(t, 1001, 1532, 1533)
	synctest.Test(t, func(t *testing.T) {
		s, err := src.Open(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		time.Sleep(time.Second)
		got := read(t, s, plan)
		for key, want := range map[string]string{
			"NVLink 1 of GPU 0 DCGM_FI_PROF_NVLINK_TX_BYTES_PER_LINK":  fmt.Sprint(65 << 20), // the library's value is the metric's number
			"NVLink 1 of GPU 0 DCGM_FI_PROF_NVLINK_RX_BYTES_PER_LINK":  fmt.Sprint(64 << 20),
			"NVLink 18 of GPU 0 DCGM_FI_PROF_NVLINK_TX_BYTES_PER_LINK": fmt.Sprint(3 << 20),
			"NVLink 0 of GPU 1 DCGM_FI_PROF_NVLINK_TX_BYTES_PER_LINK":  "fault:not_supported",
			"GPU 1 DCGM_FI_PROF_GR_ENGINE_ACTIVE":                      "fault:not_supported",
			"GPU 0 DCGM_FI_PROF_GR_ENGINE_ACTIVE":                      "0.01",
		} {
			if got[key] != want {
				t.Errorf("%s = %q, want %q", key, got[key], want)
			}
		}
	})
}

// What only switches and their links have is one fault, not one for each link.
func TestFieldsOfSwitches(t *testing.T) {
	src, _ := source(t, "gpus 2", "gpu 0 set nvlinks 2", "gpu 1 set nvlinks 2")
	plan := planOf(t, 1508, 780, 785)
	s := open(t, src, plan)
	got := read(t, s, plan)
	want := map[string]string{
		"all DCGM_FI_DEV_NVSWITCH_LINK_THROUGHPUT_TX": "fault:not_supported", "all DCGM_FI_DEV_NVSWITCH_LINK_RECOVERY_ERRORS": "fault:not_supported",
	}
	for _, key := range []string{"NVLink 0 of GPU 0", "NVLink 1 of GPU 0", "NVLink 0 of GPU 1", "NVLink 1 of GPU 1"} {
		want[key+" DCGM_FI_DEV_NVLINK_GET_STATE"] = "1"
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	plan = planOf(t, 780)
	if n := len(open(t, src, plan).Topology().Devices); n != 2 {
		t.Errorf("%d entities where only switches have the field, want the 2 GPUs", n)
	}
}
