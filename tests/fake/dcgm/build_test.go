package dcgm

import (
	"os"
	"testing"
)

func TestBuildIsCached(t *testing.T) {
	dir, err := Build()
	Need(t, err)
	before, err := os.Stat(dir + "/" + soname)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Build()
	if err != nil || again != dir {
		t.Fatalf("second Build = %q, %v; want %q", again, err, dir)
	}
	if after, err := os.Stat(dir + "/" + soname); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("second Build: library file = %v (error %v), want the one of the first Build", after, err)
	}
	other, err := Build("dcgmWatchFields")
	if err != nil || other == dir {
		t.Errorf("Build without a function = %q, %v; want a different folder", other, err)
	}
}
