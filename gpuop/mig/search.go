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

// Refusal says why a request cannot be placed and what comes closest. It is an error.
type Refusal struct {
	Board   Board
	Request Request
	// Reason is one clause that names the numbers or the slices in the way.
	Reason string
	// Nearest are complete partitions (nothing can be added to them) that differ least from the request, best first; at
	// most three.
	Nearest []Request
}

// Error is the reason with the board's name.
func (r *Refusal) Error() string {
	return fmt.Sprintf("%s does not fit on %s: %s", r.Request, r.Board.Name, r.Reason)
}

// NearestNames are the nearest partitions as ParseRequest reads them.
func (r *Refusal) NearestNames() []string {
	var names []string
	for _, n := range r.Nearest {
		names = append(names, n.String())
	}
	return names
}

// Fit places the request on one GPU of the board, by search over every permitted start, and returns
// the layout that leaves most room for further instances. Where there is none it says why.
func Fit(b Board, r Request) (Layout, *Refusal) {
	var best Layout
	most := -1
	arrange(b, r, func(l Layout, taken uint64) bool {
		room := 0 // where further standard instances could still start, by their compute slices
		for _, p := range b.Profiles {
			for _, start := range p.Starts {
				if p.Standard() && taken&span(start, p.Memory) == 0 {
					room += p.Compute
				}
			}
		}
		if room > most {
			best, most = slices.Clone(l), room
		}
		return false
	})
	if most < 0 {
		return nil, refuse(b, r)
	}
	slices.SortFunc(best, func(x, y Instance) int { return cmp.Compare(x.Start, y.Start) })
	return best, nil
}

// fits reports whether the board can hold the request.
func fits(b Board, r Request) (found bool) {
	arrange(b, r, func(Layout, uint64) bool {
		found = true
		return true
	})
	return found
}

// arrange is the search: it visits the arrangements of the request, with the bit set of their memory slices, until visit
// returns true, large instances first, low slices first. Instances of one profile are placed in ascending order, so that
// no arrangement is visited twice. The layout is only lent to visit.
func arrange(b Board, r Request, visit func(l Layout, taken uint64) (stop bool)) {
	if obstacle(b, r) != "" {
		return
	}
	var wanted []Profile
	for _, name := range slices.SortedFunc(maps.Keys(r), bySize) {
		p, _ := b.Profile(name)
		wanted = append(wanted, slices.Repeat([]Profile{p}, max(0, r[name]))...)
	}
	var search func(layout Layout, taken uint64) bool
	search = func(layout Layout, taken uint64) bool {
		i := len(layout)
		if i == len(wanted) {
			return visit(layout, taken)
		}
		p := wanted[i]
		for _, start := range p.Starts {
			again := i > 0 && wanted[i-1].Name == p.Name && start <= layout[i-1].Start
			mask := span(start, p.Memory)
			if !again && taken&mask == 0 && search(append(layout, Instance{p, start}), taken|mask) {
				return true
			}
		}
		return false
	}
	search(make(Layout, 0, len(wanted)), 0)
}

// span is the bit set of size slices from start.
func span(start, size int) uint64 { return (1<<size - 1) << start }

// refuse finds the reason and the nearest partitions. Profiles that the board does not have count as those of their size.
func refuse(b Board, r Request) *Refusal {
	known := Request{}
	for name, n := range r {
		if p, ok := b.Profile(name); ok {
			known[p.Name] += n
		} else if p, ok := counterpart(b, name); ok {
			known[p.Name] += n
		}
	}
	return &Refusal{b, r, cmp.Or(obstacle(b, r), "no arrangement respects where instances may start"), nearest(b, known)}
}

// obstacle says why the board cannot hold the request wherever its instances start; empty where it has the slices.
func obstacle(b Board, r Request) string {
	names := slices.SortedFunc(maps.Keys(r), bySize)
	for _, name := range names {
		if _, ok := b.Profile(name); !ok && r[name] > 0 {
			return unknownReason(b, name)
		}
	}
	compute, memory, media := 0, 0, 0
	var shares []string // the surprise is almost always that a 3g instance takes four memory slices
	for _, name := range names {
		p, _ := b.Profile(name)
		n := r[name]
		if n > p.Max {
			return fmt.Sprintf("%d of %s requested, at most %d fit even on an empty GPU", n, name, p.Max)
		}
		compute += n * p.Compute
		memory += n * p.Memory
		if p.exclusive() {
			media += n
		}
		times := ""
		if n != 1 {
			times = strconv.Itoa(n) + " × "
		}
		shares = append(shares, fmt.Sprintf("%s takes %s%d", name, times, p.Memory))
	}
	switch {
	case media > 1:
		return fmt.Sprintf("%d instances with media extensions requested, the GPU has one set of those engines", media)
	case compute > b.ComputeSlices:
		return fmt.Sprintf("%d compute slices needed, the GPU has %d", compute, b.ComputeSlices)
	case memory > b.MemorySlices:
		return fmt.Sprintf("%d memory slices needed, the GPU has %d (%s)", memory, b.MemorySlices, strings.Join(shares, ", "))
	}
	return ""
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

// Maximal lists every partition by the named profiles to which no further instance of any of them can be added; large
// instances first. Without names the board's standard profiles are used.
func Maximal(b Board, names ...string) []Request {
	most := Request{}
	for _, p := range b.Profiles {
		if slices.Contains(names, p.Name) || len(names) == 0 && p.Standard() {
			most[p.Name] = p.Max
		}
	}
	names = slices.SortedFunc(maps.Keys(most), bySize)
	var all []Request
	r := Request{}
	more := func(name string) bool {
		r[name]++
		defer func() { r[name]-- }()
		return fits(b, r)
	}
	var walk func(i int)
	walk = func(i int) {
		switch {
		case !fits(b, r):
		case i < len(names):
			for n := most[names[i]]; n >= 0; n-- {
				r[names[i]] = n
				walk(i + 1)
			}
		case !slices.ContainsFunc(names, more):
			full := maps.Clone(r)
			maps.DeleteFunc(full, func(_ string, n int) bool { return n == 0 })
			all = append(all, full)
		}
	}
	walk(0)
	return all
}

// nearest lists the three complete partitions that differ least from the request, weighing an instance
// by the compute slices it has. Where nothing of the request is on the board there are none.
func nearest(b Board, r Request) []Request {
	if len(r) == 0 {
		return nil
	}
	var names []string
	for _, p := range b.Profiles {
		if p.Standard() || r[p.Name] > 0 {
			names = append(names, p.Name)
		}
	}
	distance := func(got Request) (n int) {
		for _, name := range names {
			p, _ := b.Profile(name)
			d := min(r[name], 2*p.Max) - got[name]
			n += max(2*d, -d) * p.Compute // what is lost counts twice what is added
		}
		return n
	}
	all := Maximal(b, names...)
	slices.SortStableFunc(all, func(x, y Request) int { return cmp.Compare(distance(x), distance(y)) })
	return all[:min(3, len(all))]
}
