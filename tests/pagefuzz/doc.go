// Package pagefuzz checks every page of randomly generated machines.
//
// A seed determines the node (exclusive, time-sliced, claimed and MIG GPUs), its pods and their processes, and the
// faults. GPUs are lost, unbound and repartitioned. The engine stops, hangs, fails, or has a wrong clock. Fields cannot
// be read. The kubelet restarts, lists its pods one by one, is slow or hangs. The API server does not know a pod yet.
// The exporter reloads.
//
// Attribution (podmapper with gRPC), the collector's loop with its derivers, and the encoder are the real ones. Source,
// kubelet and the clock of the synctest bubble belong to the test. The generator records the true state, and the rules
// in check_test.go compare each page with it.
//
// The default run checks 10,000 pages. For more:
//
//	PAGEFUZZ_PAGES=100000 go test ./tests/pagefuzz -run TestPages -timeout 0
//	PAGEFUZZ_SEED=17 go test ./tests/pagefuzz -run TestPages -v
//	go test ./tests/pagefuzz -run '^$' -fuzz FuzzPages
package pagefuzz
