package events

// A seenUntil is how far a source has told the samples of one field of one
// entity. Sources tell some of them again: an engine does for every new
// session. What one Read tells is told once in it, so that two equal events of
// one Read are two.
type seenUntil struct {
	newest int64 // told so far, in Unix nanoseconds
	before int64 // told by the Reads before the latest
	read   uint64
}

// beyond reports whether a sample that a Read tells is new, and notes it. Reads
// are numbered from 1 on.
func (h *seenUntil) beyond(at int64, read uint64) bool {
	if h.read != read {
		h.read, h.before = read, h.newest
	}
	h.newest = max(h.newest, at)
	return at > h.before
}
