package hardware

import (
	"os"
	"strconv"
	"strings"
)

// A ProfilingRight says whether the driver lets this process read profiling metrics of GPUs before Hopper.
type ProfilingRight int

// The rights. By default, only processes with the capability SYS_ADMIN may profile.
const (
	RightUnknown    ProfilingRight = iota
	RightNone                      // the process lacks the capability
	RightCapability                // the process has the capability
	RightForAll                    // the driver was loaded with NVreg_RestrictProfilingToAdminUsers=0
)

// ProfilingRightOf returns the right of this process. It reads two files of /proc with read.
func ProfilingRightOf(read func(path string) (string, error)) ProfilingRight {
	const capSysAdmin = 1 << 21 // CAP_SYS_ADMIN, linux/capability.h
	status, err := read("/proc/self/status")
	_, set, found := strings.Cut("\n"+status, "\nCapEff:")
	set, _, _ = strings.Cut(set, "\n")
	mask, badMask := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
	params, _ := read("/proc/driver/nvidia/params")
	switch {
	case err != nil || !found || badMask != nil:
		return RightUnknown
	case mask&capSysAdmin != 0:
		return RightCapability
	case strings.Contains(params, "RmProfilingAdminOnly: 0"):
		return RightForAll
	default:
		return RightNone
	}
}

func readFile(path string) (string, error) {
	content, err := os.ReadFile(path)
	return string(content), err
}
