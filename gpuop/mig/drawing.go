package mig

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Drawing shows a layout as a strip of the board's memory slices, at most 69 columns wide so that
// it survives being pasted into a chat: a ruler, a box for each instance, the compute slices under
// each box. Slices that no instance has are marked free. With ascii it uses plain characters only.
func Drawing(b Board, l Layout, ascii bool) string {
	width := 64 / b.MemorySlices
	runs := cells(b, l)

	var ruler, top, names, variants, bottom, compute strings.Builder
	variant := false
	for i, c := range runs {
		inner := c.size*width - 1
		for s := range c.size {
			ruler.WriteString(center(strconv.Itoa(c.start+s), width))
		}
		name, attribute := c.name, ""
		if utf8.RuneCountInString(name) > inner {
			if at := strings.IndexAny(name, "+-"); at > 0 {
				name, attribute, variant = name[:at], name[at:], true
			}
		}
		left, cross := "┬", "┴"
		if i == 0 {
			left, cross = "┌", "└"
		}
		top.WriteString(left + strings.Repeat("─", inner))
		bottom.WriteString(cross + strings.Repeat("─", inner))
		names.WriteString("│" + center(name, inner))
		variants.WriteString("│" + center(attribute, inner))
		share := ""
		if c.instance {
			share = strconv.Itoa(c.compute)
		}
		compute.WriteString(" " + center(share, inner))
	}
	lines := []string{
		"slice   " + ruler.String(),
		"        " + top.String() + "┐",
		"        " + names.String() + "│",
	}
	if variant {
		lines = append(lines, "        "+variants.String()+"│")
	}
	lines = append(lines,
		"        "+bottom.String()+"┘",
		"compute "+compute.String(),
	)
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	text := strings.Join(lines, "\n") + "\n"
	if ascii {
		text = strings.NewReplacer("┌", "+", "┐", "+", "└", "+", "┘", "+", "┬", "+", "┴", "+", "─", "-", "│", "|").Replace(text)
	}
	return text
}

// cell is a run of memory slices: an instance, or free slices between instances.
type cell struct {
	start, size, compute int
	name                 string
	instance             bool
}

func cells(b Board, l Layout) []cell {
	var runs []cell
	at := 0
	gap := func(until int) {
		if at < until {
			runs = append(runs, cell{start: at, size: until - at, name: "free"})
		}
	}
	for _, i := range l {
		gap(i.Start)
		runs = append(runs, cell{start: i.Start, size: i.Profile.Memory, compute: i.Profile.Compute, name: i.Profile.Name, instance: true})
		at = i.End()
	}
	gap(b.MemorySlices)
	return runs
}

func center(s string, width int) string {
	space := width - utf8.RuneCountInString(s)
	if space <= 0 {
		return s
	}
	return strings.Repeat(" ", space/2) + s + strings.Repeat(" ", space-space/2)
}

// Usage is one line under a drawing: the slices taken, and what could still be added.
func Usage(b Board, l Layout) string {
	text := fmt.Sprintf("compute %d of %d slices, memory %d of %d slices; ", l.Compute(), b.ComputeSlices, l.Memory(), b.MemorySlices)
	var room []string
	for _, p := range b.Profiles {
		if !p.Standard() {
			continue
		}
		more := l.Request()
		n := 0
		for more[p.Name]++; n < p.Max; more[p.Name]++ {
			if _, ok := place(b, more); !ok {
				break
			}
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
