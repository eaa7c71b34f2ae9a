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
		if got, ok := kernellog.ParseXID("NVRM: Xid (" + line); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n%+v (%v), want %+v", line, got, ok, want)
		}
	}
}

// decoded formats a parsed line like the last column of testdata/lines.tsv.
func decoded(line string) string {
	d, words := gpu.XIDDetail{}, ""
	if xid, ok := kernellog.ParseXID(line); ok {
		d, words = xid.Detail, fmt.Sprint(xid.Code, " ", xid.PCIBusID)
		if xid.PID != 0 {
			words += fmt.Sprint(" pid=", xid.PID)
		}
	} else if sxid, ok := kernellog.ParseSXID(line); ok {
		d.Link, d.Severity, words = sxid.Link, sxid.Severity, fmt.Sprint("sxid ", sxid.Switch, " ", sxid.Code)
	}
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

func TestOtherLinesAreNoSXIDs(t *testing.T) {
	const start = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): "
	for _, line := range []string{
		start + "garbled, Fatal", start + "0, Fatal, Link 1 x", start + "28006, Serious, Link 46 x", start + "28006",
		start + "28006, Fatal, Link x y", start + "123456, Fatal, Link 1 x",
		"said: " + start + "28006, Fatal, Link 1 x",
		"nvidia-nvswitch: SXid (PCI:0000:c1:00.0): 28006, Fatal, Link 1 x",
		"nvidia-nvswitch3: SXid (PCI:c1): 28006, Fatal, Link 1 x", "nvidia-nvswitch3: using MSI",
	} {
		if got, ok := kernellog.ParseSXID(line); ok {
			t.Errorf("ParseSXID(%q) = %+v, want no SXID", line, got)
		}
	}
}

// A line in an unknown form yields no detail.
func TestDetailsThatAreNotUnderstood(t *testing.T) {
	const number, action = " (0x004505c6)", "154, GPU recovery action changed"
	for _, rest := range []string{
		"149", "149, NETIR_LINK_EVT Fatal XC0 i0", "149, NETIR_LINK_EVT Severe XC0 i0 Link 08" + number,
		"149, a Fatal XC0 i0 Link 08" + number, "149, NETIR Fatal XC i0 Link 08" + number,
		"149, NETIR Fatal XC0 j0 Link 08" + number, "149, NETIR Fatal XC0 i0 Link 300" + number,
		"149, NETIR Fatal XC0 i0 Link -2" + number, "149, NETIR Fatal XC0 i0 Link 08 (0x004505c6",
		"149, NETIR Fatal XC0 i0 Link 08 [0x004505c6]", "149, NETIR Fatal XC0 i0 Link 08 ()",
		"149, NETIR Fatal XC0 i0 Link 08 (0x1004505c6)", "149, NETIR Fatal XC0 i0 Link 08 (0x004505c6 x)",
		"151, NETIR_LINK_EVT Fatal XC0 i0 Link 08" + number,
		action, action + " from 0x0 (None) to 0x5 (New)", action + " from 0x0 (None) to 0x1",
		"154, pid=1, name=x, recovery action changed from 0x0 (None) to 0x1 (Reset)",
	} {
		got, ok := kernellog.ParseXID("NVRM: Xid (PCI:0000:1b:00): " + rest)
		if !ok || got.Detail != (gpu.XIDDetail{}) {
			t.Errorf("%s: XID = %+v, want one without details", rest, got)
		}
	}
}

func TestOtherLinesAreNoXIDs(t *testing.T) {
	const start = "NVRM: Xid ("
	for _, line := range []string{
		"", "NVRM: Xid", start, start + "PCI:0000:1b:00", start + "PCI:0000:1b:00): ",
		"NVRM: GPU at PCI:0000:1b:00: GPU-b850f46d-d5ea-c752-ddf3-c6e1c1f4a1b5",
		"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 27 sourcetrack timeout error",
		start + "PCI:0000:1b:00): 0, none", start + "PCI:0000:1b:00): 10001, none",
		start + "PCI:0000:1b:00): -79, none", start + "PCI:0000:1b:00): 0x4f, none",
		start + "PCI:0000:1b:00): 79 80, none",
		start + "PCI:0000:xx:00): 79, no bus", start + "PCI:0000:1b:00.8): 79, no function",
		start + "PCI:1b): 79, no address", "said: " + start + "PCI:0000:1b:00): 79, quoted",
		" " + start + "PCI:0000:1b:00): 79, indented", start + "1b:00): 79, no domain", start + "0:4): 79, short",
		start + "00001b:00): 79, no colon", start + "00000000:1b:00): 79, long domain",
		start + "0000:1b:00.0): 79, function", start + "PCI:000:1b:00): 79, short domain",
		start + "PCI:0000:b:00): 79, short bus", start + "PCI:0000:1b:0): 79, short device",
		start + "PCI:0000:1b:20): 79, no device 32", start + "PCI:0000:1b:00 x): 79, suffix",
		start + "PCI:0000:1b:00 GPU-I:-1): 43, pid=9", start + "PCI:0000:1b:00 GPU-I:): 43",
		start + "PCI:0000:1b:00 GPU-I:5 segfault): 43", start + "PCI:0000:1b:00 GPU-I:99999999999): 43",
		start + "PCI:0000:1b:00):79, no blank", start + "PCI:0000:1b:00): 79 , blank",
		start + "PCI:0000:1b:00): +79, sign",
		start + "0:4 [4958]: segfault at 0 ip 00007f74 sp 00007ffd error 4 in x): 79, pid=1, name=a, off the bus",
	} {
		if got, ok := kernellog.ParseXID(line); ok {
			t.Errorf("ParseXID(%q) = %+v, want no XID", line, got)
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
		if xid, ok := kernellog.ParseXID(line); ok {
			t.Errorf("ParseXID(%q) = %+v, want no XID", line, xid)
		}
		if sxid, ok := kernellog.ParseSXID(line); ok {
			t.Errorf("ParseSXID(%q) = %+v, want no SXID", line, sxid)
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
		if got, ok := kernellog.ParseXID(line); !ok || got.Detail != want {
			t.Errorf("%q\n%+v (%v), want %+v", line, got.Detail, ok, want)
		}
		got, _ := kernellog.ParseXID("NVRM: Xid (PCI:0000:1b:00): " + any)
		sxid, _ := kernellog.ParseSXID("nvidia-nvswitch1: SXid (PCI:0000:c1:00.0): " + any)
		d := got.Detail
		for _, value := range []string{d.Unit, d.SubCode, d.Link, d.Severity, d.Action, sxid.Link, sxid.Severity} {
			if len(value) > 40 || strings.ContainsAny(value, " ,=()\"") {
				t.Errorf("%q: label value = %q, want at most 40 bytes without separators", any, value)
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
		xid, ok := kernellog.ParseXID(record.Text)
		if !ok {
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
		if got, ok := kernellog.ParseXID(again); !ok || !reflect.DeepEqual(got, xid) {
			t.Errorf("%q: XID = %+v; written as %q: XID = %+v, want the same", b, xid, again, got)
		}
	})
}
