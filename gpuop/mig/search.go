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

// names returns the profiles with an instance, large to small.
func (r Request) names() []string {
	names := slices.SortedFunc(maps.Keys(r), bySize)
	return slices.DeleteFunc(names, func(name string) bool { return r[name] == 0 })
}

// String formats the request for ParseRequest, large instances first.
func (r Request) String() string {
	parts := r.names()
	for i, name := range parts {
		if r[name] > 1 {
			parts[i] += "=" + strconv.Itoa(r[name])
		}
	}
	return strings.Join(parts, " ")
}

// bySize sorts profile names large to small: by compute slices, memory, then name.
func bySize(a, b string) int {
	x, _ := parseName(a)
	y, _ := parseName(b)
	return cmp.Or(cmp.Compare(y.compute, x.compute), cmp.Compare(y.gigabytes, x.gigabytes), strings.Compare(a, b))
}

// ParseRequest parses profiles with an optional count: "3g.40gb=2" or "1g.10gb". It accepts the driver's spelling
// (1g.10gb+me) and the one in configs and resource names (1g.10gb.me, mig-1g.10gb.me).
func ParseRequest(words []string) (Request, error) {
	r := Request{}
	for _, word := range strings.Fields(strings.Join(words, " ")) {
		name, count, counted := strings.Cut(word, "=")
		canonical, ok := CanonicalProfile(name)
		n, err := strconv.Atoi(count)
		if !ok || counted && (err != nil || n < 1) {
			return nil, fmt.Errorf("unreadable request %q: expected a MIG profile such as 3g.40gb or 1g.10gb+me, "+
				"optionally with =count", word)
		}
		r[canonical] += max(1, n)
	}
	if len(r) == 0 {
		return nil, errors.New("unreadable request: no profile given, expected for example 3g.40gb=2")
	}
	return r, nil
}

// Instance is a placed GPU instance. It occupies Size memory slices from Start.
type Instance struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"`
	Size    int    `json:"size"`
}

// Fit places the request on a GPU, and returns the instances sorted by start. It tries all permitted starts, large
// instances first and high slices first, as the driver does. If nothing fits, the error says why.
func Fit(b Board, r Request) ([]Instance, error) {
	fail := func(format string, args ...any) ([]Instance, error) {
		return nil, fmt.Errorf("%s does not fit on %s: %s", r, b.Name, fmt.Sprintf(format, args...))
	}
	var wanted []Profile
	var shares []string // users do not expect that a 3g instance takes four memory slices
	compute, memory, media := 0, 0, 0
	for _, name := range r.names() {
		n := r[name]
		p, ok := b.Profile(name)
		switch {
		case !ok:
			return fail("the board has no profile %s; available: %s", name, strings.Join(b.names(), ", "))
		case n > p.Max:
			return fail("%d of %s requested, but at most %d fit, even on an empty GPU", n, name, p.Max)
		}
		wanted = append(wanted, slices.Repeat([]Profile{p}, n)...)
		shares = append(shares, fmt.Sprintf("%s takes %d × %d", name, n, p.Memory))
		compute += n * p.Compute
		memory += n * p.Memory
		if strings.Contains(name, "+me") { // the board has only one set of extra media engines
			media += n
		}
	}
	switch {
	case media > 1:
		return fail("%d instances with media extensions requested, but only one fits on a GPU", media)
	case compute > b.ComputeSlices:
		return fail("%d compute slices needed, but the GPU has %d", compute, b.ComputeSlices)
	case memory > b.MemorySlices:
		return fail("%d memory slices needed, but the GPU has %d (%s)",
			memory, b.MemorySlices, strings.Join(shares, ", "))
	}
	l := place(wanted, []Instance{}, 0)
	if l == nil {
		return fail("no arrangement fits the allowed start positions")
	}
	slices.SortFunc(l, func(x, y Instance) int { return cmp.Compare(x.Start, y.Start) })
	return l, nil
}

// place adds the wanted instances that l does not have yet, and returns nil if they do not fit. Each bit in taken is a
// memory slice. Instances with the same profile are placed in descending order of start, so that no layout is tried
// twice.
func place(wanted []Profile, l []Instance, taken uint64) []Instance {
	i := len(l)
	if i == len(wanted) {
		return l
	}
	p := wanted[i]
	for _, start := range slices.Backward(p.Starts) {
		mask := uint64(1<<p.Memory-1) << start
		if taken&mask != 0 || i > 0 && l[i-1].Profile == p.Name && start >= l[i-1].Start {
			continue
		}
		if found := place(wanted, append(l, Instance{p.Name, start, p.Memory}), taken|mask); found != nil {
			return found
		}
	}
	return nil
}

// Maximal lists the combinations of standard profiles to which no instance can be added, large instances first.
func Maximal(b Board) []Request {
	var standard []Profile
	for _, p := range slices.Backward(b.Profiles) {
		if p.Standard() {
			standard = append(standard, p)
		}
	}
	var all []Request
	var walk func(r Request, rest []Profile)
	walk = func(r Request, rest []Profile) {
		if _, err := Fit(b, r); err != nil {
			return
		}
		if len(rest) > 0 {
			for n := rest[0].Max; n >= 0; n-- {
				r[rest[0].Name] = n
				walk(r, rest[1:])
			}
			return
		}
		for _, p := range standard {
			more := maps.Clone(r)
			more[p.Name]++
			if _, err := Fit(b, more); err == nil {
				return
			}
		}
		all = append(all, maps.Clone(r))
	}
	walk(Request{}, standard)
	return all
}
