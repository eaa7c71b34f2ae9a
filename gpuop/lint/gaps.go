package lint

import (
	"fmt"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
)

// gaps reports lists of which the flags leave out an element: Helm fills in null, which the API server refuses.
func (in *installation) gaps() {
	if in.opaque {
		return
	}
	seen := map[string]map[int]bool{}
	first := map[string]*setting{}
	for _, s := range in.settings {
		if m := elementText.FindStringSubmatch(s.element); m != nil {
			path := s.Path.String()
			if seen[path] == nil {
				seen[path], first[path] = map[int]bool{}, s
			}
			at, _ := strconv.Atoi(m[1])
			seen[path][at] = true
		}
	}
	for _, path := range names(seen) {
		last := 0
		for at := range seen[path] {
			last = max(last, at)
		}
		if missing := last + 1 - len(seen[path]); missing > 0 {
			in.add("list-gap", finding.Error, fmt.Sprintf("the flags give %d elements of %d: Helm fills the gaps with null, and the API server refuses the ClusterPolicy", len(seen[path]), last+1),
				"number the elements from 0 without a gap", sourceHelm, first[path])
			in.mistakes[len(in.mistakes)-1].Subject = path
		}
	}
}
