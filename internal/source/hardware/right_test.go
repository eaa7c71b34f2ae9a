package hardware

import (
	"io/fs"
	"testing"
)

func TestProfilingRight(t *testing.T) {
	const (
		status, params = "/proc/self/status", "/proc/driver/nvidia/params"
		admin, none    = "Name:\tx\nCapEff:\t0000000000200000\n", "CapEff:\t00000000a80425fb\n"
	)
	for name, tt := range map[string]struct {
		files map[string]string
		want  ProfilingRight
	}{
		"the capability":                      {map[string]string{status: admin, params: "RmProfilingAdminOnly: 1\n"}, RightCapability},
		"no capability":                       {map[string]string{status: none, params: "RmProfilingAdminOnly: 1\n"}, RightNone},
		"no capability, no parameters":        {map[string]string{status: none}, RightNone},
		"a driver that lets everyone profile": {map[string]string{status: none, params: "A: 1\nRmProfilingAdminOnly: 0\n"}, RightForAll},
		"no status":                           {nil, RightUnknown},
		"a status without capabilities":       {map[string]string{status: "Name:\tx\n"}, RightUnknown},
		"a status with other capabilities":    {map[string]string{status: "CapEff: all\n"}, RightUnknown},
	} {
		got := ProfilingRightOf(func(path string) (string, error) {
			if text, ok := tt.files[path]; ok {
				return text, nil
			}
			return "", fs.ErrNotExist
		})
		if got != tt.want {
			t.Errorf("%s: right = %d, want %d", name, got, tt.want)
		}
	}
}
