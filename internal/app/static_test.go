package app

import (
	"errors"
	"testing"
)

// Whose a process is is said by the UID of the API server, where one is asked.
func TestPodOfProcessesOfStaticPods(t *testing.T) {
	failure := errors.New("no such thing")
	podOf := func(pid uint32) (string, error) {
		if pid == 0 {
			return "", failure
		}
		return "hash", nil
	}
	k := kubernetes{}
	if k.podOf(nil) != nil {
		t.Error("a source that tells nothing of processes does now")
	}
	if uid, err := k.podOf(podOf)(1); uid != "hash" || err != nil {
		t.Errorf("without an API server: %q, %v", uid, err)
	}
	k.uidOf = func(uid string) string { return map[string]string{"hash": "mirror"}[uid] }
	if uid, err := k.podOf(podOf)(1); uid != "mirror" || err != nil {
		t.Errorf("with one: %q, %v", uid, err)
	}
	if uid, err := k.podOf(podOf)(0); uid != "" || !errors.Is(err, failure) {
		t.Errorf("a process that cannot be looked at: %q, %v", uid, err)
	}
	if k.podOf(nil) != nil {
		t.Error("a source that tells nothing of processes does now")
	}
}
