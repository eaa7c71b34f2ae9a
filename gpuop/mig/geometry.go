package mig

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
)

// Evidence says how well a board's placements are attested.
type Evidence int

const (
	// Assumed placements follow the pattern of the boards that are attested; counts come from
	// NVIDIA's own default mig-parted file and the MIG User Guide.
	Assumed Evidence = iota
	// Attested placements were printed by a driver (nvidia-smi mig -lgipp) or are in NVIDIA's
	// own simulated device that upstream tests against.
	Attested
)

// String returns "assumed" or "attested".
func (e Evidence) String() string {
	if e == Attested {
		return "attested"
	}
	return "assumed"
}

// Profile is one kind of GPU instance on one board.
type Profile struct {
	// Name is the driver's spelling, for example "1g.10gb+me".
	Name string
	// Compute is the number of compute slices an instance takes.
	Compute int
	// Memory is the number of memory slices an instance takes.
	Memory int
	// Max is the most instances of this profile alone that one GPU can hold.
	Max int
	// Starts lists the memory slices at which an instance may begin, ascending.
	Starts []int
	// SMs is the number of streaming multiprocessors of an instance, or 0 where it is not attested.
	SMs int
	// Synonym marks a name that only some drivers use for a slice that the row has under another.
	Synonym bool
}

// Standard reports whether the profile is a plain division of the board: neither a variant with
// extra or fewer media engines (+me, -me, +gfx), nor the one-slice instance with doubled memory,
// nor another driver's name for the same slice.
func (p Profile) Standard() bool {
	return !p.Synonym && !strings.ContainsAny(p.Name, "+-") && (p.Compute > 1 || p.Memory == 1)
}

// exclusive reports whether the instance claims the board's one set of extra media engines, of
// which there is a single one (JPEG and optical flow), so that one instance at most can have them.
func (p Profile) exclusive() bool {
	_, attribute, ok := strings.Cut(p.Name, "+")
	return ok && (attribute == "me" || attribute == "me.all")
}

// Board is one GPU model with respect to MIG: all boards of a row share one geometry.
type Board struct {
	// Name is the row's title, for example "A100/A800-40GB".
	Name string
	// Aliases are further spellings that a user may type.
	Aliases []string
	// Products are normalised beginnings of the nvidia.com/gpu.product label.
	Products []string
	// Typical is the nvidia.com/gpu.product label of the row's most common board.
	Typical string
	// PCIIDs are the device ids as mig-parted's device-filter spells them: 0x<device>10DE.
	PCIIDs []string
	// MemorySlices and ComputeSlices are what one GPU has to give.
	MemorySlices, ComputeSlices int
	// MemoryMiB is the total that nvidia-smi prints for a typical board of the row, 0 if unknown.
	MemoryMiB int
	// Family and ComputeCapability are what GPU Feature Discovery derives from the architecture.
	Family, ComputeCapability string
	// Profiles are in the order in which tables print them: small to large.
	Profiles []Profile
	// Evidence and Source say where the placements come from.
	Evidence Evidence
	Source   string
}

// Profile returns the board's profile of that name.
func (b Board) Profile(name string) (Profile, bool) {
	for _, p := range b.Profiles {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}

const (
	sourceGuide  = "MIG User Guide, \"Supported MIG Profiles\"; mig-parted deployments/systemd/config-default.yaml"
	sourceMock   = "go-nvml pkg/nvml/mock/gpus; MIG User Guide (nvidia-smi mig -lgipp)"
	sourceListed = "placements printed by nvidia-smi mig -lgipp on the board, as published by its users"
)

// eightSlices is the geometry that every seven-instance board from A100 on shares: eight memory
// slices, seven compute slices. Names are given in the order 1g, 1g with doubled memory, 2g, 3g,
// 4g, 7g; sms in the order 1g, 2g, 3g, 4g, 7g (nil where not attested).
func eightSlices(one, double, two, three, four, seven string, sms ...int) profiles {
	sm := func(i int) int {
		if i < len(sms) {
			return sms[i]
		}
		return 0
	}
	every := []int{0, 1, 2, 3, 4, 5, 6}
	return profiles{
		{Name: one, Compute: 1, Memory: 1, Max: 7, Starts: every, SMs: sm(0)},
		{Name: one + "+me", Compute: 1, Memory: 1, Max: 1, Starts: every, SMs: sm(0)},
		{Name: double, Compute: 1, Memory: 2, Max: 4, Starts: []int{0, 2, 4, 6}, SMs: sm(0)},
		{Name: two, Compute: 2, Memory: 2, Max: 3, Starts: []int{0, 2, 4}, SMs: sm(1)},
		{Name: three, Compute: 3, Memory: 4, Max: 2, Starts: []int{0, 4}, SMs: sm(2)},
		{Name: four, Compute: 4, Memory: 4, Max: 1, Starts: []int{0}, SMs: sm(3)},
		{Name: seven, Compute: 7, Memory: 8, Max: 1, Starts: []int{0}, SMs: sm(4)},
	}
}

// profiles are those of one board.
type profiles []Profile

// with sets the number of SMs of one profile, where it does not follow from the others.
func (p profiles) with(name string, sms int) profiles {
	for i := range p {
		if p[i].Name == name {
			p[i].SMs = sms
		}
	}
	return p
}

// supportedGPUs is the page that names the boards with MIG, without their profiles.
const supportedGPUs = "MIG User Guide r610, \"Supported GPUs\""

// unattested are boards that exist and whose MIG geometry no source here attests: the beginning of
// the label nvidia.com/gpu.product, which board they are not, and where they are named. They are
// said to be unknown, not taken for their neighbors.
var unattested = []struct{ product, what, source string }{
	{"h20-3e", "the H20-3e has 141 GB, unlike the H20", supportedGPUs + " names the H20 with 96 GB alone"},
	{"h20-141gb", "the H20-3e has 141 GB, unlike the H20", supportedGPUs + " names the H20 with 96 GB alone"},
	{"h100-sxm5-94gb", "the H100 SXM5 with 94 GB is another board than the H100 NVL", supportedGPUs + ": 94 GB, 7 instances; in no list of mig-parted"},
	{"rtx-pro-5000", "the RTX PRO 5000 is another board than the RTX PRO 6000", supportedGPUs + ": 48 GB, 2 instances; in no list of mig-parted"},
	{"rtx-pro-4500", "the RTX PRO 4500 is another board than the RTX PRO 6000", supportedGPUs + ": 32 GB, 2 instances; in no list of mig-parted"},
	{"gh200-120gb", "the GH200 with 120 GB is another board than those with 96 and 144 GB", supportedGPUs + " names the H100 on GH200 with 96 GB alone"},
}

// Boards returns the geometry table, one row per geometry, oldest architecture first. The caller
// owns the result.
func Boards() []Board {
	eight := func(b Board, profiles []Profile) Board {
		b.MemorySlices, b.ComputeSlices, b.Profiles = 8, 7, profiles
		return b
	}
	four := func(b Board, profiles []Profile) Board {
		b.MemorySlices, b.ComputeSlices, b.Profiles = 4, 4, profiles
		return b
	}
	ones, twos, whole := []int{0, 1, 2, 3}, []int{0, 2}, []int{0}
	return []Board{
		four(Board{
			Name: "A30-24GB", Typical: "NVIDIA-A30", Aliases: []string{"A30"}, Products: []string{"a30"},
			PCIIDs: []string{"0x20B710DE"}, MemoryMiB: 24576, Family: "ampere", ComputeCapability: "8.0",
			Evidence: Attested, Source: sourceMock + "; counts also hard-coded in mig-parted, because NVML reports this board wrongly",
		}, []Profile{
			{Name: "1g.6gb", Compute: 1, Memory: 1, Max: 4, Starts: ones, SMs: 14},
			{Name: "1g.6gb+me", Compute: 1, Memory: 1, Max: 1, Starts: ones, SMs: 14},
			{Name: "2g.12gb", Compute: 2, Memory: 2, Max: 2, Starts: twos, SMs: 28},
			{Name: "2g.12gb+me", Compute: 2, Memory: 2, Max: 1, Starts: twos, SMs: 28},
			{Name: "4g.24gb", Compute: 4, Memory: 4, Max: 1, Starts: whole, SMs: 56},
		}),
		eight(Board{
			Name: "A100/A800-40GB", Typical: "NVIDIA-A100-SXM4-40GB", Aliases: []string{"A100-40GB", "A800-40GB", "A100-40", "A100-SXM4-40GB", "A100-PCIE-40GB"},
			Products: []string{"a100-sxm4-40gb", "a100-pcie-40gb", "a100-pg509", "a800-sxm4-40gb", "a800-pcie-40gb", "a800-40gb"},
			PCIIDs:   []string{"0x20B010DE", "0x20B110DE", "0x20F110DE", "0x20F610DE"}, MemoryMiB: 40960, Family: "ampere", ComputeCapability: "8.0",
			Evidence: Attested, Source: sourceMock,
		}, eightSlices("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", 14, 28, 42, 56, 98)),
		eight(Board{
			Name: "A100/A800-80GB", Typical: "NVIDIA-A100-SXM4-80GB", Aliases: []string{"A100-80GB", "A800-80GB", "A100-80", "A100-SXM4-80GB", "A100-PCIE-80GB"},
			Products: []string{"a100-sxm4-80gb", "a100-80gb-pcie", "a100-pcie-80gb", "a800-sxm4-80gb", "a800-80gb-pcie"},
			PCIIDs:   []string{"0x20B210DE", "0x20B510DE", "0x20F310DE", "0x20F510DE"}, MemoryMiB: 81920, Family: "ampere", ComputeCapability: "8.0",
			Evidence: Attested, Source: sourceMock,
		}, eightSlices("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", 14, 28, 42, 56, 98)),
		eight(Board{
			Name: "H100/H800-80GB", Typical: "NVIDIA-H100-80GB-HBM3", Aliases: []string{"H100-80GB", "H800-80GB", "H100-80", "H100", "H800"},
			Products: []string{"h100-80gb-hbm3", "h100-80gb-hbm2e", "h100-pcie", "h800-pcie", "h800-80gb", "h800"},
			PCIIDs:   []string{"0x233010DE", "0x233110DE", "0x232210DE", "0x232410DE"}, MemoryMiB: 81559, Family: "hopper", ComputeCapability: "9.0",
			Evidence: Attested, Source: sourceListed,
		}, eightSlices("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")),
		eight(Board{
			Name: "H100/H800 NVL 94GB", Typical: "NVIDIA-H100-NVL", Aliases: []string{"H100-NVL", "H800-NVL"}, Products: []string{"h100-nvl", "h800-nvl"},
			PCIIDs: []string{"0x232110DE", "0x233A10DE"}, MemoryMiB: 95830, Family: "hopper", ComputeCapability: "9.0",
			Evidence: Attested, Source: sourceListed,
		}, eightSlices("1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb", 0, 0, 60, 64, 132)),
		eight(Board{
			Name: "H100-96GB/GH200-96/H20/PG506", Typical: "NVIDIA-GH200-480GB", Aliases: []string{"H100-96GB", "GH200-96GB", "GH200-480GB", "GH200", "H20", "PG506-96GB", "PG506"},
			Products: []string{"gh200-480gb", "h20", "h100-96gb", "h100-64gb", "pg506"},
			PCIIDs:   []string{"0x234210DE", "0x233D10DE", "0x20B610DE", "0x232910DE"}, MemoryMiB: 97871, Family: "hopper", ComputeCapability: "9.0",
			Source: sourceGuide,
		}, eightSlices("1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb")),
		eight(Board{
			Name: "GH200-144GB", Typical: "NVIDIA-GH200-144G-HBM3e", Aliases: []string{"GH200-144", "GH200-144G-HBM3e"}, Products: []string{"gh200-144g"},
			PCIIDs: []string{"0x234810DE"}, Family: "hopper", ComputeCapability: "9.0",
			Source: sourceGuide + "; SMs as nvidia-smi mig -lgip printed them: github.com/NVIDIA/mig-parted, pull request 139",
		}, eightSlices("1g.18gb", "1g.36gb", "2g.36gb", "3g.72gb", "4g.72gb", "7g.144gb", 16, 32).with("1g.36gb", 26)),
		eight(Board{
			Name: "H200-141GB/H200 NVL", Typical: "NVIDIA-H200", Aliases: []string{"H200", "H200-141GB", "H200-NVL"}, Products: []string{"h200"},
			PCIIDs: []string{"0x233510DE", "0x233B10DE"}, MemoryMiB: 143771, Family: "hopper", ComputeCapability: "9.0",
			Source: sourceGuide + "; SMs as nvidia-smi mig -lgip printed them: github.com/NVIDIA/mig-parted, issue 120",
		}, eightSlices("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb", 16, 32, 60, 64, 132).with("1g.35gb", 26)),
		eight(Board{
			Name: "B200", Typical: "NVIDIA-B200", Products: []string{"b200"}, PCIIDs: []string{"0x290110DE"}, MemoryMiB: 183359, Family: "blackwell", ComputeCapability: "10.0",
			Source: sourceGuide + "; SMs as nvidia-smi mig -lgip printed them: github.com/NVIDIA/mig-parted, pull request 166",
		}, eightSlices("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb", 18, 36).with("1g.45gb", 30)),
		eight(Board{
			Name: "GB200", Typical: "NVIDIA-GB200", Products: []string{"gb200"}, PCIIDs: []string{"0x294110DE"}, Family: "blackwell", ComputeCapability: "10.0",
			Source: sourceGuide + "; the same file also names 3g.95gb, 4g.95gb and 7g.189gb for this board; SMs as nvidia-smi mig -lgip printed them: github.com/NVIDIA/mig-parted, issue 227",
		}, append(eightSlices("1g.23gb", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb", 18, 38).with("1g.47gb", 32),
			Profile{Name: "3g.95gb", Compute: 3, Memory: 4, Max: 2, Starts: []int{0, 4}, Synonym: true},
			Profile{Name: "4g.95gb", Compute: 4, Memory: 4, Max: 1, Starts: []int{0}, Synonym: true},
			Profile{Name: "7g.189gb", Compute: 7, Memory: 8, Max: 1, Starts: []int{0}, Synonym: true},
		)),
		eight(Board{
			Name: "B300", Typical: "NVIDIA-B300-SXM6-AC", Products: []string{"b300"}, PCIIDs: []string{"0x318210DE"}, Family: "blackwell", ComputeCapability: "10.3",
			Source: sourceGuide,
		}, eightSlices("1g.34gb", "1g.67gb", "2g.67gb", "3g.135gb", "4g.135gb", "7g.269gb")),
		eight(Board{
			Name: "GB300", Typical: "NVIDIA-GB300", Products: []string{"gb300"}, PCIIDs: []string{"0x31C210DE"}, Family: "blackwell", ComputeCapability: "10.3",
			Source: sourceGuide,
		}, eightSlices("1g.35gb", "1g.70gb", "2g.70gb", "3g.139gb", "4g.139gb", "7g.278gb")),
		four(Board{
			Name: "RTX PRO 6000 Blackwell 96GB", Typical: "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", Aliases: []string{"RTX-PRO-6000", "RTXPRO6000", "RTX-PRO-6000-Blackwell"},
			Products: []string{"rtx-pro-6000-blackwell"}, PCIIDs: []string{"0x2BB510DE"}, MemoryMiB: 97887, Family: "blackwell", ComputeCapability: "12.0",
			Source: "MIG User Guide (counts only); placements follow from the counts of a four-slice board",
		}, []Profile{
			{Name: "1g.24gb", Compute: 1, Memory: 1, Max: 4, Starts: ones, SMs: 46},
			{Name: "1g.24gb+me", Compute: 1, Memory: 1, Max: 1, Starts: ones, SMs: 46},
			{Name: "1g.24gb+gfx", Compute: 1, Memory: 1, Max: 4, Starts: ones, SMs: 46},
			{Name: "1g.24gb+me.all", Compute: 1, Memory: 1, Max: 1, Starts: ones, SMs: 46},
			{Name: "1g.24gb-me", Compute: 1, Memory: 1, Max: 4, Starts: ones, SMs: 46},
			{Name: "2g.48gb", Compute: 2, Memory: 2, Max: 2, Starts: twos, SMs: 94},
			{Name: "2g.48gb+gfx", Compute: 2, Memory: 2, Max: 2, Starts: twos, SMs: 94},
			{Name: "2g.48gb+me.all", Compute: 2, Memory: 2, Max: 1, Starts: twos, SMs: 94},
			{Name: "2g.48gb-me", Compute: 2, Memory: 2, Max: 2, Starts: twos, SMs: 94},
			{Name: "4g.96gb", Compute: 4, Memory: 4, Max: 1, Starts: whole, SMs: 188},
			{Name: "4g.96gb+gfx", Compute: 4, Memory: 4, Max: 1, Starts: whole, SMs: 188},
		}),
	}
}

// normal brings the spellings that users, labels and tables have for one board to one form:
// lower case, words joined by single hyphens, without the leading maker.
func normal(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '_' || r == '-' || r == '/' }), "-")
	return strings.TrimPrefix(s, "nvidia-")
}

// ErrUnknownBoard is returned for a word that names no board of the geometry table, or several.
var ErrUnknownBoard = errors.New("unknown MIG board")

// FindBoard finds the row for what a user knows a GPU by: the row's name, an everyday name
// ("A100-40GB"), a PCI id in any usual spelling ("0x20B010DE", "20b0", "10de:20b0"), or the value
// of the nvidia.com/gpu.product label, with or without the suffixes that MIG and sharing add to it.
// The error wraps ErrUnknownBoard and names the spellings that were probably meant.
func FindBoard(word string) (Board, error) {
	boards := Boards()
	if id, ok := pciID(word); ok {
		for _, b := range boards {
			if slices.Contains(b.PCIIDs, id) {
				return b, nil
			}
		}
	}
	n := normal(word)
	for _, u := range unattested {
		if strings.HasPrefix(n, u.product) {
			return Board{}, fmt.Errorf("%w %q: %s, and its MIG profiles are not known here (%s)", ErrUnknownBoard, word, u.what, u.source)
		}
	}
	best, length := byProduct(boards, n)
	var names, begun []string
	for _, b := range boards {
		for _, name := range append([]string{b.Name}, b.Aliases...) {
			if normal(name) == n {
				return b, nil
			}
			names = append(names, name)
		}
		short := b.Name
		if len(b.Aliases) > 0 {
			short = b.Aliases[0]
		}
		if n != "" && strings.HasPrefix(normal(short), n) {
			begun = append(begun, short)
		}
	}
	switch {
	case length > 0:
		return best, nil
	case len(begun) > 0:
		return Board{}, fmt.Errorf("%w %q: want one of %s", ErrUnknownBoard, word, strings.Join(begun, ", "))
	}
	if near := finding.Nearest(word, names); near != "" {
		return Board{}, fmt.Errorf("%w %q: did you mean %s?", ErrUnknownBoard, word, near)
	}
	return Board{}, fmt.Errorf("%w %q: no board of that name, PCI id or nvidia.com/gpu.product label has MIG here", ErrUnknownBoard, word)
}

// byProduct finds the board with the longest product name that n begins with; length is 0 without
// one.
func byProduct(boards []Board, n string) (best Board, length int) {
	for _, b := range boards {
		for _, p := range b.Products {
			rest, ok := strings.CutPrefix(n, p)
			if ok && (rest == "" || rest[0] == '-') && len(p) > length {
				best, length = b, len(p)
			}
		}
	}
	return best, length
}

// pciID reads a PCI device id of NVIDIA's and returns it as mig-parted's device-filter spells it.
func pciID(word string) (string, bool) {
	w := strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(word)), "0X")
	if rest, ok := strings.CutPrefix(w, "10DE:"); ok {
		w = rest + "10DE"
	}
	if len(w) == 4 {
		w += "10DE"
	}
	if len(w) != 8 || !strings.HasSuffix(w, "10DE") {
		return "", false
	}
	if _, err := strconv.ParseUint(w, 16, 32); err != nil {
		return "", false
	}
	return "0x" + w, true
}
