package mig

import (
	"fmt"
	"strconv"
	"strings"
)

// Drawing shows a layout as a strip of the board's memory slices, at most 73 columns wide so that it survives being pasted
// into a chat: a ruler, a box for each instance, the compute slices under each box. Slices that no instance has are marked
// free.
func Drawing(b Board, l Layout) string {
	const margin = "        "
	width := 64 / b.MemorySlices
	ruler, top, names, variants, bottom, compute := "slice   ", margin, margin, margin, margin, "compute "
	for s := range b.MemorySlices {
		ruler += center(strconv.Itoa(s), width)
	}
	box := func(size int, name, share string) {
		inner := size*width - 1
		left, cross, attribute := "┬", "┴", ""
		if top == margin {
			left, cross = "┌", "└"
		}
		if at := strings.IndexAny(name, "+-"); at > 0 && len(name) > inner {
			name, attribute = name[:at], name[at:]
		}
		top += left + strings.Repeat("─", inner)
		names += "│" + center(name, inner)
		variants += "│" + center(attribute, inner)
		bottom += cross + strings.Repeat("─", inner)
		compute += " " + center(share, inner)
	}
	at := 0
	free := func(until int) {
		if at < until {
			box(until-at, "free", "")
		}
	}
	for _, i := range l {
		free(i.Start)
		box(i.Profile.Memory, i.Profile.Name, strconv.Itoa(i.Profile.Compute))
		at = i.End()
	}
	free(b.MemorySlices)
	lines := []string{strings.TrimRight(ruler, " "), top + "┐", names + "│"}
	if strings.ContainsAny(variants, "+-") {
		lines = append(lines, variants+"│")
	}
	lines = append(lines, bottom+"┘", strings.TrimRight(compute, " "))
	return strings.Join(lines, "\n") + "\n"
}

func center(s string, width int) string {
	space := max(0, width-len(s))
	return strings.Repeat(" ", space/2) + s + strings.Repeat(" ", space-space/2)
}

// Usage is one line under a drawing: the slices taken, and what could still be added.
func Usage(b Board, l Layout) string {
	compute, memory := 0, 0
	for _, i := range l {
		compute += i.Profile.Compute
		memory += i.Profile.Memory
	}
	text := fmt.Sprintf("compute %d of %d slices, memory %d of %d slices; ", compute, b.ComputeSlices, memory, b.MemorySlices)
	var room []string
	for _, p := range b.Profiles {
		more := l.Request()
		n := 0
		for more[p.Name]++; p.Standard() && fits(b, more); more[p.Name]++ {
			n++
		}
		if n > 0 {
			room = append(room, Request{p.Name: n}.String())
		}
	}
	if len(room) == 0 {
		return text + "nothing more fits"
	}
	return text + "room for " + strings.Join(room, ", or ")
}
