package mig

import (
	"strconv"
	"strings"
)

// Drawing shows a layout as a strip of the board's memory slices: a ruler, a box for each instance, the compute slices
// under each box. Slices that no instance has are marked free.
func Drawing(b Board, l Layout) string {
	const margin = "        "
	width := 64 / b.MemorySlices // of a slice, wider where a name does not fit
	for _, i := range l {
		width = max(width, len(i.Profile.Name)/i.Profile.Memory+1)
	}
	ruler, top, names, bottom, compute := "slice   ", margin, margin, margin, "compute "
	for s := range b.MemorySlices {
		ruler += center(strconv.Itoa(s), width)
	}
	box := func(size int, name, share string) {
		inner := size*width - 1
		left, cross := "┬", "┴"
		if top == margin {
			left, cross = "┌", "└"
		}
		top += left + strings.Repeat("─", inner)
		names += "│" + center(name, inner)
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
		at = i.Start + i.Profile.Memory
	}
	free(b.MemorySlices)
	lines := []string{strings.TrimRight(ruler, " "), top + "┐", names + "│", bottom + "┘", strings.TrimRight(compute, " ")}
	return strings.Join(lines, "\n") + "\n"
}

func center(s string, width int) string {
	space := max(0, width-len(s))
	return strings.Repeat(" ", space/2) + s + strings.Repeat(" ", space-space/2)
}
