package hardware

import (
	"io/fs"
	"testing"
)

func TestProfilingRight(t *testing.T) {
	const admin, none = "Name:\tx\nCapEff:\t0000000000200000\n", "CapEff:\t00000000a80425fb\n"
	for name, tt := range map[string]struct {
		status, params string
		want           ProfilingRight
	}{
		"the capability":                      {admin, "RmProfilingAdminOnly: 1\n", RightCapability},
		"no capability":                       {none, "RmProfilingAdminOnly: 1\n", RightNone},
		"no capability, no parameters":        {none, "", RightNone},
		"a driver that lets everyone profile": {none, "A: 1\nRmProfilingAdminOnly: 0\n", RightForAll},
		"no status":                           {"", "", RightUnknown},
		"a status without capabilities":       {"Name:\tx\n", "", RightUnknown},
		"a status with other capabilities":    {"CapEff: all\n", "", RightUnknown},
	} {
		got := ProfilingRightOf(func(path string) (string, error) {
			text := map[string]string{"/proc/self/status": tt.status, "/proc/driver/nvidia/params": tt.params}[path]
			if text == "" {
				return "", fs.ErrNotExist
			}
			return text, nil
		})
		if got != tt.want {
			t.Errorf("%s: right = %d, want %d", name, got, tt.want)
		}
	}
}
