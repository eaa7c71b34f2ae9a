package exposition

// A labelSets remembers which label sets a family has written, by their hashes: a set of integers
// that is emptied in no time and keeps its memory.
//
// The hash of a label set is the sum of the seeded 64-bit hashes of its labels, so that it does not
// depend on their order. Two different sets of one family collide with a probability of about
// samples² / 2⁶⁵.
type labelSets struct {
	slots []slot // a power of two of them, at most half full
	used  int
	epoch uint32
}

type slot struct {
	hash  uint64
	epoch uint32 // the slot is in use if it is the set's
}

// reset empties the set.
func (s *labelSets) reset() {
	s.used = 0
	s.epoch++
	if s.epoch == 0 { // wrapped around: slots of long ago would look used
		clear(s.slots)
		s.epoch = 1
	}
}

// add adds hash, and reports false if it was there already.
func (s *labelSets) add(hash uint64) bool {
	if 2*s.used >= len(s.slots) {
		s.grow()
	}
	mask := uint64(len(s.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		switch sl := &s.slots[i]; {
		case sl.epoch != s.epoch:
			*sl = slot{hash: hash, epoch: s.epoch}
			s.used++
			return true
		case sl.hash == hash:
			return false
		}
	}
}

func (s *labelSets) grow() {
	old, epoch := s.slots, s.epoch
	*s = labelSets{slots: make([]slot, max(64, 2*len(old))), epoch: 1}
	for _, sl := range old {
		if sl.epoch == epoch {
			s.add(sl.hash)
		}
	}
}
