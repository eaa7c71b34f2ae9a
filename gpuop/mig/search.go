package mig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Request maps profile names to the number of instances wanted on a GPU.
type Request map[string]int

// String formats the request for ParseRequest, large instances first.
func (r Request) String() string {
	var parts []string
	for _, name := range slices.SortedFunc(maps.Keys(r), bySize) {
		switch n := r[name]; {
		case n == 1:
			parts = append(parts, name)
		case n > 1:
			parts = append(parts, name+"="+strconv.Itoa(n))
		}
	}
	return strings.Join(parts, " ")
}

// bySize sorts profile names large to small: by compute slices, memory, then name.
func bySize(a, b string) int {
	size := func(name string) (compute, gigabytes int) {
		g, rest, _ := strings.Cut(name, "g.")
		gb, _, _ := strings.Cut(rest, "gb")
		compute, _ = strconv.Atoi(g)
		gigabytes, _ = strconv.Atoi(gb)
		return compute, gigabytes
	}
	ag, agb := size(a)
	bg, bgb := size(b)
	return cmp.Or(cmp.Compare(bg, ag), cmp.Compare(bgb, agb), strings.Compare(a, b))
}

// ErrRequest is returned for an empty request, and for words that are not profile or profile=count.
var ErrRequest = errors.New("unreadable request")

// ParseRequest parses profiles with an optional count: "3g.40gb=2" or "1g.10gb". It accepts the driver's spelling
// (1g.10gb+me) and the one in configs and resource names (1g.10gb.me, mig-1g.10gb.me). Errors wrap ErrRequest.
func ParseRequest(words []string) (Request, error) {
	r := Request{}
	for _, word := range strings.Fields(strings.Join(words, " ")) {
		name, count, counted := strings.Cut(word, "=")
		canonical, ok := CanonicalProfile(name)
		if !ok {
			return nil, fmt.Errorf("%w %q: expected a MIG profile such as 3g.40gb or 1g.10gb+me, "+
				"optionally with =count", ErrRequest, word)
		}
		n, err := strconv.Atoi(count)
		if counted && (err != nil || n < 1) {
			return nil, fmt.Errorf("%w %q: expected profile=count with a count of at least 1", ErrRequest, word)
		}
		r[canonical] += max(1, n)
	}
	if len(r) == 0 {
		return nil, fmt.Errorf("%w: no profile given, expected for example 3g.40gb=2", ErrRequest)
	}
	return r, nil
}

// Instance is a placed GPU instance. It occupies Size memory slices from Start.
type Instance struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"`
	Size    int    `json:"size"`
}

// Layout is a set of instances that fit on one GPU together, sorted by start.
type Layout []Instance

// ErrFit is returned for requests that do not fit on a GPU.
var ErrFit = errors.New("does not fit")

// Fit places the request on a GPU. It tries all permitted starts, large instances first and high slices first, as the
// driver does. If nothing fits, the error wraps ErrFit and says why.
func Fit(b Board, r Request) (Layout, error) {
	reason := obstacle(b, r)
	if reason == "" {
		if l := place(b, r); l != nil {
			return l, nil
		}
		reason = "no arrangement fits the allowed start positions"
	}
	return nil, fmt.Errorf("%s %w on %s: %s", r, ErrFit, b.Name, reason)
}

// place searches for a layout, and returns nil if there is none. Instances with the same profile are placed in
// descending order of start, so that no layout is tried twice.
func place(b Board, r Request) Layout {
	var wanted []Profile
	for _, name := range slices.SortedFunc(maps.Keys(r), bySize) {
		p, _ := b.Profile(name)
		wanted = append(wanted, slices.Repeat([]Profile{p}, r[name])...)
	}
	var search func(l Layout, taken uint64) Layout
	search = func(l Layout, taken uint64) Layout {
		i := len(l)
		if i == len(wanted) {
			return l
		}
		p := wanted[i]
		for _, start := range slices.Backward(p.Starts) {
			again := i > 0 && l[i-1].Profile == p.Name && start >= l[i-1].Start
			mask := uint64(1<<p.Memory-1) << start
			if again || taken&mask != 0 {
				continue
			}
			if found := search(append(l, Instance{p.Name, start, p.Memory}), taken|mask); found != nil {
				return found
			}
		}
		return nil
	}
	l := search(Layout{}, 0)
	slices.SortFunc(l, func(x, y Instance) int { return cmp.Compare(x.Start, y.Start) })
	return l
}

func fits(b Board, r Request) bool {
	return obstacle(b, r) == "" && place(b, r) != nil
}

// obstacle says why the board cannot hold the request, as far as this is clear without a search. Otherwise it returns
// "".
func obstacle(b Board, r Request) string {
	compute, memory, media := 0, 0, 0
	var shares []string // users do not expect that a 3g instance takes four memory slices
	for _, name := range slices.SortedFunc(maps.Keys(r), bySize) {
		n := r[name]
		p, ok := b.Profile(name)
		switch {
		case n == 0:
			continue
		case !ok:
			return fmt.Sprintf("the board has no profile %s; available: %s", name, strings.Join(b.names(), ", "))
		case n > p.Max:
			return fmt.Sprintf("%d of %s requested, but at most %d fit, even on an empty GPU", n, name, p.Max)
		}
		compute += n * p.Compute
		memory += n * p.Memory
		if p.exclusive() {
			media += n
		}
		times := ""
		if n > 1 {
			times = strconv.Itoa(n) + " × "
		}
		shares = append(shares, fmt.Sprintf("%s takes %s%d", name, times, p.Memory))
	}
	switch {
	case media > 1:
		return fmt.Sprintf("%d instances with media extensions requested, but only one fits on a GPU", media)
	case compute > b.ComputeSlices:
		return fmt.Sprintf("%d compute slices needed, but the GPU has %d", compute, b.ComputeSlices)
	case memory > b.MemorySlices:
		return fmt.Sprintf("%d memory slices needed, but the GPU has %d (%s)",
			memory, b.MemorySlices, strings.Join(shares, ", "))
	}
	return ""
}

// Maximal lists the combinations of standard profiles to which no instance can be added, large instances first.
func Maximal(b Board) []Request {
	most := Request{}
	for _, p := range b.Profiles {
		if p.Standard() {
			most[p.Name] = p.Max
		}
	}
	names := slices.SortedFunc(maps.Keys(most), bySize)
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
