// Package pagefuzz plays random machines and looks at every page that comes of it.
//
// A seed decides the node (whole, time-sliced and claimed GPUs, GPUs cut by MIG), its pods and
// their processes, and what goes wrong: GPUs that are lost, unbound and cut again, an engine that
// dies, hangs, fails, or whose clock is off, fields that are not read, a kubelet that restarts,
// lists its pods one by one, is slow or hangs, an API server that knows no pods yet, and reloads.
// Attribution (podmapper over gRPC), the collector's loop with its derivers, and the
// encoder are those of the exporter; the source, the kubelet and the clock, which is that of a
// bubble, are the test's own. What the page may say is judged by the generator's truth.
//
// A test plays a few thousand pages. For more:
//
//	PAGEFUZZ_PAGES=100000 go test ./tests/pagefuzz -run TestPages -timeout 0
//	PAGEFUZZ_SEED=17 go test ./tests/pagefuzz -run TestPages -v
//	go test ./tests/pagefuzz -run '^$' -fuzz FuzzPages
package pagefuzz
