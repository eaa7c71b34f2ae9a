package mig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// Request is a wanted set of instances on one GPU: profile name to count.
type Request map[string]int

// String writes the request as ParseRequest reads it, large instances first.
func (r Request) String() string {
	names := slices.SortedFunc(maps.Keys(r), bySize)
	var parts []string
	for _, name := range names {
		switch n := r[name]; {
		case n == 1:
			parts = append(parts, name)
		case n > 1:
			parts = append(parts, name+"="+strconv.Itoa(n))
		}
	}
	return strings.Join(parts, " ")
}

// bySize orders profile names large to small: by compute slices, then memory, then spelling.
func bySize(a, b string) int {
	size := func(name string) (g, gb int) {
		p, _ := parseName(name)
		return p.compute, p.gigabytes
	}
	ag, agb := size(a)
	bg, bgb := size(b)
	return cmp.Or(cmp.Compare(bg, ag), cmp.Compare(bgb, agb), strings.Compare(a, b))
}

// ErrRequest is returned for a word that does not read as profile=count.
var ErrRequest = errors.New("unreadable request")

// ParseRequest reads words such as "3g.40gb=2" or "1g.10gb". Both the driver's spelling of a profile (1g.10gb+me) and the
// spelling in config and resource names (1g.10gb.me, mig-1g.10gb.me) are understood. The error wraps ErrRequest.
func ParseRequest(words []string) (Request, error) {
	r := Request{}
	for _, word := range words {
		for part := range strings.FieldsSeq(word) {
			name, count, counted := strings.Cut(part, "=")
			canonical, ok := CanonicalProfile(name)
			if !ok {
				return nil, fmt.Errorf("%w %q: want a MIG profile such as 3g.40gb or 1g.10gb+me, with =count for several", ErrRequest, part)
			}
			n, err := strconv.Atoi(count)
			if counted && (err != nil || n < 1) {
				return nil, fmt.Errorf("%w %q: want profile=count with a count of at least 1", ErrRequest, part)
			}
			r[canonical] += max(1, n)
		}
	}
	if len(r) == 0 {
		return nil, fmt.Errorf("%w: no profile given, want for example 3g.40gb=2", ErrRequest)
	}
	return r, nil
}

// Instance is one placed GPU instance.
type Instance struct {
	Profile Profile
	// Start is the first memory slice that it takes.
	Start int
}

// End is the memory slice after the last one that the instance takes.
func (i Instance) End() int { return i.Start + i.Profile.Memory }

// Layout is a set of instances that one GPU can hold at the same time, by ascending start.
type Layout []Instance

// Request is the layout without its placements.
func (l Layout) Request() Request {
	r := Request{}
	for _, i := range l {
		r[i.Profile.Name]++
	}
	return r
}

// Compute is the number of compute slices that the layout takes.
func (l Layout) Compute() int {
	n := 0
	for _, i := range l {
		n += i.Profile.Compute
	}
	return n
}

// Memory is the number of memory slices that the layout takes.
func (l Layout) Memory() int {
	n := 0
	for _, i := range l {
		n += i.Profile.Memory
	}
	return n
}

// Cause is why a request cannot be placed.
type Cause string

// The causes, in the order in which they are looked for: the first that applies is reported.
const (
	// UnknownProfile means that the board has no such profile.
	UnknownProfile Cause = "unknown-profile"
	// TooMany means more of one profile than the board can hold even when it is empty.
	TooMany Cause = "too-many"
	// MediaEngines means more than one instance with the board's only set of extra media engines.
	MediaEngines Cause = "media-engines"
	// ComputeSlices means that the instances need more compute slices than there are.
	ComputeSlices Cause = "compute-slices"
	// MemorySlices means that the instances need more memory slices than there are.
	MemorySlices Cause = "memory-slices"
	// Placement means that the slices would suffice, but no arrangement respects where instances
	// may start.
	Placement Cause = "placement"
)

// Refusal says why a request cannot be placed and what comes closest. It is an error.
type Refusal struct {
	Board   Board
	Request Request
	Cause   Cause
	// Reason is one clause that names the numbers or the slices in the way.
	Reason string
	// Nearest are complete layouts (nothing can be added to them) that differ least from the
	// request, best first; at most three.
	Nearest []Layout
}

// Error is the reason with the board's name.
func (r *Refusal) Error() string {
	return fmt.Sprintf("%s does not fit on %s: %s", r.Request, r.Board.Name, r.Reason)
}

// NearestNames are the nearest layouts without their placements.
func (r *Refusal) NearestNames() []string {
	var names []string
	for _, l := range r.Nearest {
		names = append(names, l.Request().String())
	}
	return names
}

// Fit places the request on one GPU of the board, by search over every permitted start, and returns
// the layout that leaves most room for further instances. Where there is none it says why.
func Fit(b Board, r Request) (Layout, *Refusal) {
	var best Layout
	room := -1
	arrange(b, r, func(l Layout) bool {
		if n := openStarts(b, l); n > room {
			best, room = slices.Clone(l), n
		}
		return false
	})
	if room < 0 {
		return nil, refuse(b, r)
	}
	slices.SortFunc(best, func(x, y Instance) int { return cmp.Compare(x.Start, y.Start) })
	return best, nil
}

// openStarts weighs where further standard instances could still start.
func openStarts(b Board, l Layout) int {
	var taken uint64
	for _, i := range l {
		taken |= span(i.Start, i.Profile.Memory)
	}
	n := 0
	for _, p := range b.Profiles {
		if !p.Standard() {
			continue
		}
		for _, start := range p.Starts {
			if taken&span(start, p.Memory) == 0 {
				n += p.Compute
			}
		}
	}
	return n
}

// place returns the first arrangement.
func place(b Board, r Request) (layout Layout, found bool) {
	arrange(b, r, func(l Layout) bool {
		layout, found = slices.Clone(l), true
		return true
	})
	slices.SortFunc(layout, func(x, y Instance) int { return cmp.Compare(x.Start, y.Start) })
	return layout, found
}

// arrange is the search: it visits the arrangements of the request until visit returns true, large instances first, low
// slices first. Instances of one profile are placed in ascending order, so that no arrangement is visited twice. The
// layout is only lent to visit.
func arrange(b Board, r Request, visit func(Layout) (stop bool)) {
	if c, _ := cause(b, r); c != Placement {
		return
	}
	var wanted []Profile
	for _, name := range slices.SortedFunc(maps.Keys(r), bySize) {
		p, _ := b.Profile(name)
		wanted = append(wanted, slices.Repeat([]Profile{p}, max(0, r[name]))...)
	}
	layout := make(Layout, 0, len(wanted))
	var search func(i int, taken uint64) bool
	search = func(i int, taken uint64) bool {
		if i == len(wanted) {
			return visit(layout)
		}
		p := wanted[i]
		for _, start := range p.Starts {
			if i > 0 && wanted[i-1].Name == p.Name && start <= layout[len(layout)-1].Start {
				continue
			}
			mask := span(start, p.Memory)
			if taken&mask != 0 {
				continue
			}
			layout = append(layout, Instance{Profile: p, Start: start})
			if search(i+1, taken|mask) {
				return true
			}
			layout = layout[:len(layout)-1]
		}
		return false
	}
	search(0, 0)
}

// span is the bit set of size slices from start.
func span(start, size int) uint64 { return (1<<size - 1) << start }

// refuse finds the cause and the nearest layouts. Profiles that the board does not have count as those of their size.
func refuse(b Board, r Request) *Refusal {
	f := &Refusal{Board: b, Request: r}
	f.Cause, f.Reason = cause(b, r)
	known := Request{}
	for name, n := range r {
		if _, ok := b.Profile(name); ok {
			known[name] += n
		} else if stand, ok := counterpart(b, name); ok {
			known[stand.Name] += n
		}
	}
	f.Nearest = nearest(b, known)
	return f
}

// cause says why the board cannot hold the request wherever its instances start; Placement where it has the slices.
func cause(b Board, r Request) (Cause, string) {
	names := slices.SortedFunc(maps.Keys(r), bySize)
	for _, name := range names {
		if _, ok := b.Profile(name); !ok && r[name] > 0 {
			return UnknownProfile, unknownReason(b, name)
		}
	}
	compute, memory, media := 0, 0, 0
	for _, name := range names {
		p, _ := b.Profile(name)
		if r[name] > p.Max {
			return TooMany, fmt.Sprintf("%d of %s requested, at most %d fit even on an empty GPU", r[name], name, p.Max)
		}
		compute += r[name] * p.Compute
		memory += r[name] * p.Memory
		if p.exclusive() {
			media += r[name]
		}
	}
	switch {
	case media > 1:
		return MediaEngines, fmt.Sprintf("%d instances with media extensions requested, the GPU has one set of those engines", media)
	case compute > b.ComputeSlices:
		return ComputeSlices, fmt.Sprintf("%d compute slices needed, the GPU has %d", compute, b.ComputeSlices)
	case memory > b.MemorySlices:
		return MemorySlices, memoryReason(b, r, names, memory)
	}
	return Placement, "no arrangement respects where instances may start"
}

// memoryReason names each share of the memory slices, because the surprise is almost always that a
// 3g instance takes four of them.
func memoryReason(b Board, r Request, names []string, memory int) string {
	var shares []string
	for _, name := range names {
		p, _ := b.Profile(name)
		times := ""
		if r[name] != 1 {
			times = strconv.Itoa(r[name]) + " × "
		}
		shares = append(shares, fmt.Sprintf("%s takes %s%d", name, times, p.Memory))
	}
	return fmt.Sprintf("%d memory slices needed, the GPU has %d (%s)", memory, b.MemorySlices, strings.Join(shares, ", "))
}

func unknownReason(b Board, name string) string {
	if p, ok := counterpart(b, name); ok {
		return fmt.Sprintf("there is no %s on this board, %s is its slice of that size", name, p.Name)
	}
	if near := report.Nearest(name, b.names()); near != "" {
		return fmt.Sprintf("there is no %s on this board, did you mean %s?", name, near)
	}
	return fmt.Sprintf("there is no %s on this board, it has %s", name, strings.Join(b.names(), ", "))
}

func (b Board) names() []string {
	names := make([]string, len(b.Profiles))
	for i, p := range b.Profiles {
		names[i] = p.Name
	}
	return names
}

// counterpart is the board's standard profile with as many compute slices as the name says: what a
// user of another board's name wants.
func counterpart(b Board, name string) (Profile, bool) {
	want, ok := parseName(name)
	if !ok {
		return Profile{}, false
	}
	for _, p := range b.Profiles {
		if p.Standard() && p.Compute == want.compute {
			return p, true
		}
	}
	return Profile{}, false
}

// Maximal lists every layout of the named profiles to which no further instance of any of them can be added; large
// instances first. Without names the board's standard profiles are used.
func Maximal(b Board, names ...string) []Layout {
	most := Request{}
	for _, p := range b.Profiles {
		if slices.Contains(names, p.Name) || len(names) == 0 && p.Standard() {
			most[p.Name] = p.Max
		}
	}
	names = slices.SortedFunc(maps.Keys(most), bySize)
	var layouts []Layout
	r := Request{}
	var walk func(i int)
	walk = func(i int) {
		l, ok := place(b, r)
		if !ok {
			return
		}
		if i < len(names) {
			for n := most[names[i]]; n >= 0; n-- {
				r[names[i]] = n
				walk(i + 1)
			}
			return
		}
		for _, name := range names {
			r[name]++
			_, more := place(b, r)
			r[name]--
			if more {
				return
			}
		}
		layouts = append(layouts, l)
	}
	walk(0)
	return layouts
}

// nearest lists the three complete layouts that differ least from the request, weighing an instance
// by the compute slices it has. Where nothing of the request is on the board there are none.
func nearest(b Board, r Request) []Layout {
	if len(r) == 0 {
		return nil
	}
	var names []string
	for _, p := range b.Profiles {
		if p.Standard() || r[p.Name] > 0 {
			names = append(names, p.Name)
		}
	}
	layouts := Maximal(b, names...)
	distance := func(l Layout) int {
		got, lost, added := l.Request(), 0, 0
		for _, name := range names {
			p, _ := b.Profile(name)
			switch d := min(r[name], 2*p.Max) - got[name]; {
			case d > 0:
				lost += d * p.Compute
			case d < 0:
				added -= d * p.Compute
			}
		}
		return 2*lost + added
	}
	slices.SortStableFunc(layouts, func(x, y Layout) int { return cmp.Compare(distance(x), distance(y)) })
	return layouts[:min(3, len(layouts))]
}
