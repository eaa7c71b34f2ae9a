package kernellog_test

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/events/kernellog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// TestParseXID covers forms that are not in testdata/lines.tsv.
func TestParseXID(t *testing.T) {
	const bus = "00000000:1B:00.0"
	for line, want := range map[string]gpu.XID{
		"PCI:0000:1b:00): 79, pid=<unknown>, name=<unknown>, GPU has fallen": {PCIBusID: bus, Code: 79},
		"PCI:0000:1b:00): 31, pid='77', name=a,b, Ch 00000010":               {PCIBusID: bus, Code: 31, PID: 77},
		"PCI:0000:1b:00): 43, pid=5, Ch 00000010":                            {PCIBusID: bus, Code: 43, PID: 5},
		"PCI:0000:1b:00): 43, pid=5":                                         {PCIBusID: bus, Code: 43, PID: 5},
		"PCI:0000:1b:00): 43, pid=12345678901, x":                            {PCIBusID: bus, Code: 43},
		"PCI:0000:1b:00 GPU-I:12): 43, pid=9": {
			PCIBusID: bus, Code: 43, PID: 9, InstanceID: 12, OnInstance: true,
		},
		"PCI:0000:1b:00 GPU-I:00): 43, pid=9": {PCIBusID: bus, Code: 43, PID: 9, OnInstance: true},
		"PCI:0000:1b:00 GPU-I:05 GPU-CI:03): 13, pid=9, Graphics SM Warp Exception": {
			PCIBusID: bus, Code: 13, PID: 9, InstanceID: 5, OnInstance: true,
		},
		"PCI:00000000:1B:00.0): 48, An uncorrectable double bit error": {PCIBusID: bus, Code: 48},
		"PCI:10000:1b:00): 79, behind a VMD controller":                {PCIBusID: "00010000:1B:00.0", Code: 79},
		"0000:1b:00): 8, Channel 00000001":                             {PCIBusID: bus, Code: 8},
		"PCI:0000:1b:00): 45":                                          {PCIBusID: bus, Code: 45},
	} {
		if got, unparsed := kernellog.ParseLine("NVRM: Xid (" + line); unparsed != "" || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n%+v (unparsed: %q), want %+v", line, got, unparsed, want)
		}
	}
}

// decoded formats a parsed line like the last column of testdata/lines.tsv.
func decoded(line string) string {
	x, unparsed := kernellog.ParseLine(line)
	words := fmt.Sprint(x.Code, " ", x.PCIBusID)
	switch {
	case unparsed != "":
		return "unparsed " + unparsed
	case x.Code == 0:
		return "no error"
	case x.OnSwitch:
		words = fmt.Sprint("sxid ", x.Switch, " ", x.Code)
	case x.PID != 0:
		words += fmt.Sprint(" pid=", x.PID)
	}
	d := x.Detail
	for _, l := range [][2]string{
		{"unit", d.Unit}, {"subcode", d.SubCode}, {"link", d.Link}, {"severity", d.Severity}, {"action", d.Action},
	} {
		if l[1] != "" {
			words += " " + l[0] + "=" + l[1]
		}
	}
	return words
}

// Lines quoted in public reports are decoded exactly.
func TestLinesOfTheField(t *testing.T) {
	text, err := os.ReadFile("testdata/lines.tsv")
	if err != nil {
		t.Fatal(err)
	}
	// The URL of a thread ends after its number; other URLs are of files and pages.
	thread := regexp.MustCompile(`^https://(github\.com/\S+/(issues|pull)/\d+|(forums|bbs)\.\S+)$`)
	threads := 0
	for row := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSuffix(row, "\n"), "\t")
		if strings.HasPrefix(row, "#") {
			continue
		}
		if len(cells) != 3 || !strings.HasPrefix(cells[0], "https://") {
			t.Fatalf("row = %q, want a source, a line and its meaning", row)
		}
		if thread.MatchString(cells[0]) {
			threads++
		}
		if got := decoded(cells[1]); got != cells[2] {
			t.Errorf("%s\n%q, want %q", cells[1], got, cells[2])
		}
	}
	if threads < 60 {
		t.Errorf("lines of threads = %d, want at least 60", threads)
	}
}

// Lines in an unknown form yield no XID, or one without details.
func TestUnknownForms(t *testing.T) {
	const (
		xid, sxid = "NVRM: Xid (PCI:0000:1b:00): ", "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): "
		number    = " (0x004505c6)"
		action    = "154, GPU recovery action changed"
	)
	for _, tt := range []struct {
		unparsed, start string
		rests           []string
	}{
		{"detail", xid, []string{
			"149", "149, NETIR_LINK_EVT Fatal XC0 i0", "149, NETIR_LINK_EVT Severe XC0 i0 Link 08" + number,
			"149, a Fatal XC0 i0 Link 08" + number, "149, NETIR Fatal XC i0 Link 08" + number,
			"149, NETIR Fatal XC0 j0 Link 08" + number, "149, NETIR Fatal XC0 i0 Link 300" + number,
			"149, NETIR Fatal XC0 i0 Link -2" + number, "149, NETIR Fatal XC0 i0 Link 08 (0x004505c6",
			"149, NETIR Fatal XC0 i0 Link 08 [0x004505c6]", "149, NETIR Fatal XC0 i0 Link 08 ()",
			"149, NETIR Fatal XC0 i0 Link 08 (0x1004505c6)", "149, NETIR Fatal XC0 i0 Link 08 (0x004505c6 x)",
			action, action + " from 0x0 (None) to 0x5 (New)", action + " from 0x0 (None) to 0x1",
			"154, pid=1, name=x, recovery action changed from 0x0 (None) to 0x1 (Reset)",
		}},
		{"", xid, []string{"151, NETIR_LINK_EVT Fatal XC0 i0 Link 08" + number}},
		{"sxid", sxid, []string{
			"garbled, Fatal", "0, Fatal, Link 1 x", "28006, Serious, Link 46 x", "28006", "28006, Fatal, Link x y",
			"123456, Fatal, Link 1 x",
		}},
		{"sxid", "nvidia-nvswitch", []string{
			": SXid (PCI:0000:c1:00.0): 28006, Fatal, Link 1 x", "3: SXid (PCI:c1): 28006, Fatal, Link 1 x",
		}},
		{"", "", []string{
			"", "NVRM: GPU at PCI:0000:1b:00: GPU-b850f46d-d5ea-c752-ddf3-c6e1c1f4a1b5", "nvidia-nvswitch3: using MSI",
			"said: " + sxid + "28006, Fatal, Link 1 x", "said: " + xid + "79, quoted", " " + xid + "79, indented",
			sxid + "28006, Severity 0 Engine instance 46 Sub-engine instance 00",
		}},
		{"xid", "NVRM: Xid", []string{"", " (", " (PCI:0000:1b:00"}},
		{"xid", xid, []string{
			"", "0, none", "10001, none", "-79, none", "0x4f, none", "79 80, none", "79 , blank", "+79, sign",
		}},
		{"xid", "NVRM: Xid (", []string{
			"PCI:0000:xx:00): 79, no bus", "PCI:0000:1b:00.8): 79, no function", "PCI:1b): 79, no address",
			"1b:00): 79, no domain", "0:4): 79, short", "00001b:00): 79, no colon", "00000000:1b:00): 79, long domain",
			"0000:1b:00.0): 79, function", "PCI:000:1b:00): 79, short domain", "PCI:0000:b:00): 79, short bus",
			"PCI:0000:1b:0): 79, short device", "PCI:0000:1b:20): 79, no device 32", "PCI:0000:1b:00 x): 79, suffix",
			"PCI:0000:1b:00 GPU-I:-1): 43, pid=9", "PCI:0000:1b:00 GPU-I:): 43", "PCI:0000:1b:00):79, no blank",
			"PCI:0000:1b:00 GPU-I:5 segfault): 43", "PCI:0000:1b:00 GPU-I:99999999999): 43",
			"0:4 [4958]: segfault at 0 ip 00007f74 sp 00007ffd error 4 in x): 79, pid=1, name=a, off the bus",
		}},
	} {
		for _, rest := range tt.rests {
			x, unparsed := kernellog.ParseLine(tt.start + rest)
			isXID := tt.start == xid && strings.HasPrefix(rest, "15") || tt.unparsed == "detail"
			if unparsed != tt.unparsed || (x.Code != 0) != isXID || x.Detail != (gpu.XIDDetail{}) {
				t.Errorf("%s\n%+v (unparsed: %q), want unparsed %q, an XID: %t, and no details",
					tt.start+rest, x, unparsed, tt.unparsed, isXID)
			}
		}
	}
}

// processNameSize is the maximum length of a process name: TASK_COMM_LEN without the terminating zero.
const processNameSize = 15

// FuzzProcessName checks that no kernel line that begins with a process name is parsed as an XID or SXID. A process
// controls its name and some later text, such as the name of the file it crashed in. The kernel writes the text between
// them.
func FuzzProcessName(f *testing.F) {
	kernels := []string{
		"[4958]: segfault at 0 ip 00007f74 sp 00007ffd error 4 in ", "[7]: bad frame in setup: ",
		"[7] general protection fault ip:1 sp:2 error:0 in ", "[7] trap invalid opcode ip:1 sp:2 error:0 in ",
		": page allocation failure: order:0, ", " invoked oom-killer: gfp_mask=0xcc0, ", "(7): Uhhuh. ", " (7): ",
		" uses obsolete ", ": loading out-of-tree module ", "/7: ", "' ",
	}
	for _, name := range []string{
		"NVRM: Xid (0:4 ", "NVRM: Xid (PCI:", "NVRM: Xid (0000", "NVRM: Xid (1:0)", "nvidia-nvswitch", "python3",
		"NVRM: Xid ", "NVRM:", "",
	} {
		for _, rest := range []string{
			"x): 79, pid=1, name=a, GPU has fallen off the bus.", "0000:1b:00): 79, x", ":1b:00): 79, x",
			"3: SXid (PCI:0000:c1:00.0): 28006, Fatal, x",
		} {
			for i := range kernels {
				f.Add(name, uint8(i), rest)
			}
		}
	}
	f.Fuzz(func(t *testing.T, name string, kernel uint8, rest string) {
		line := name[:min(len(name), processNameSize)] + kernels[int(kernel)%len(kernels)] + rest
		if x, _ := kernellog.ParseLine(line); x.Code != 0 {
			t.Errorf("ParseLine(%q) = %+v, want no XID", line, x)
		}
	})
}

// FuzzDetail checks that the detail of an XID is decoded whatever the process is called. It also checks that
// arbitrary text yields only valid label values.
func FuzzDetail(f *testing.F) {
	f.Add("NETIR_LINK_EVT", uint32(0x004505c6), int8(8), true,
		"ray::WorkerDict", "149, NETIR Fatal XC0 i0 Link -1 (0x000fe406)")
	f.Add("RLW", uint32(0), int8(-1), false,
		"a, b Link 7 (0x1)", "154, GPU recovery action changed from 0x1 (a) to 0x0 (None)")
	f.Add("_", uint32(0x004505c6), int8(8), true, "0\xfaUG\n%_", "79\n, a name with a newline")
	f.Fuzz(func(t *testing.T, unit string, number uint32, link int8, fatal bool, name, any string) {
		if len(unit) == 0 || len(unit) > 40 || strings.Trim(unit, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/") != "" {
			unit = "UNIT"
		}
		want := gpu.XIDDetail{Unit: unit, SubCode: strconv.Itoa(int(number >> 20 % 64)), Severity: "nonfatal"}
		word := "Nonfatal"
		if fatal {
			word, want.Severity = "Fatal  ", "fatal"
		}
		link = max(link, -1)
		if link >= 0 {
			want.Link = strconv.Itoa(int(link))
		}
		const form = "NVRM: Xid (PCI:0000:1b:00): 149, pid=7, name=%s, %s  %s XC0 i0 Link %02d (0x%08x 0x00000000)"
		line := fmt.Sprintf(form, name, unit, word, link, number)
		if got, unparsed := kernellog.ParseLine(line); unparsed != "" || got.Detail != want {
			t.Errorf("%q\n%+v (unparsed: %q), want %+v", line, got.Detail, unparsed, want)
		}
		for _, start := range []string{"NVRM: Xid (PCI:0000:1b:00): ", "nvidia-nvswitch1: SXid (PCI:0000:c1:00.0): "} {
			got, _ := kernellog.ParseLine(start + any)
			d := got.Detail
			for _, value := range []string{d.Unit, d.SubCode, d.Link, d.Severity, d.Action} {
				if len(value) > 40 || strings.ContainsAny(value, " ,=()\"") {
					t.Errorf("%q: label value = %q, want at most 40 bytes without separators", start+any, value)
				}
			}
		}
	})
}

// FuzzRecord checks that arbitrary bytes yield an XID only if they are a line of the driver. Written as a line again,
// the XID is decoded to the same value.
func FuzzRecord(f *testing.F) {
	f.Add([]byte("4,339,5140900,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1\n SUBSYSTEM=pci\n"))
	f.Add([]byte("12,339,5140900,-,caller=T1;NVRM: Xid (PCI:0000:1b:00): 79, pid=1"))
	f.Add([]byte("4,1,1,-;NVRM: Xid (0000:1b:00 GPU-I:1 GPU-CI:2): 79"))
	f.Fuzz(func(t *testing.T, b []byte) {
		record, ok := kernellog.ParseRecord(b)
		if !ok {
			return
		}
		if strings.Contains(record.Text, "\n") || !strings.Contains(string(b), ";"+record.Text) {
			t.Errorf("%q: record = %+v, want its text on one line", b, record)
		}
		xid, _ := kernellog.ParseLine(record.Text)
		if xid.Code == 0 || xid.OnSwitch {
			return
		}
		if xid.Code < 1 || xid.Code > gpu.MaxXID || !strings.Contains(record.Text, "NVRM: Xid (") ||
			!strings.Contains(record.Text, strconv.FormatInt(xid.Code, 10)) {
			t.Errorf("%q: XID = %+v, want a code that is in the text", b, xid)
		}
		part := ""
		xid.Detail = gpu.XIDDetail{} // covered by FuzzDetail
		if xid.OnInstance {
			part = fmt.Sprintf(" GPU-I:%02d", xid.InstanceID)
		}
		again := fmt.Sprintf("NVRM: Xid (PCI:%s%s): %d, pid=%d, x", xid.PCIBusID, part, xid.Code, xid.PID)
		if got, _ := kernellog.ParseLine(again); !reflect.DeepEqual(got, xid) {
			t.Errorf("%q: XID = %+v; written as %q: XID = %+v, want the same", b, xid, again, got)
		}
	})
}
