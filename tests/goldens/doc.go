// Package goldens compares pages with the golden pages in testdata/pages. Reviewers read these files, and a page may
// only change on purpose. Other tests check the series about the fabric, and the counts of XIDs.
//
// The sources are simulated nodes with a fake clock, and the test libraries of DCGM and NVML. After an intended change,
// run
//
//	go test ./tests/goldens -update
package goldens
