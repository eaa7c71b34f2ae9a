//go:build e2e

package operator

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// build builds gpuop in the server's folder.
func (s *server) build(t *testing.T) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", filepath.Join(s.folder, "gpuop"), "./gpuop")
	cmd.Dir = "../../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// command returns a command that runs gpuop as a user of the API server.
func (s *server) command(user string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.folder, "gpuop"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfigOf(user))
	return cmd
}

// A run is the output and the exit code of gpuop.
type run struct {
	out, log string
	code     int
}

// gpuop runs the program as a user of the API server.
func (s *server) gpuop(t *testing.T, user string, args ...string) run {
	t.Helper()
	cmd := s.command(user, args...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return run{out.String(), log.String(), cmd.ProcessState.ExitCode()}
}

func TestStates(t *testing.T) {
	s := start(t)
	for _, name := range stateNames(t) {
		t.Run(name, func(t *testing.T) {
			st := load(t, name)
			s.enter(t, st)
			for _, command := range slices.Sorted(maps.Keys(st.Expect)) {
				if command != gathered {
					t.Run(command, func(t *testing.T) { s.judge(t, st, command) })
				}
			}
		})
	}
}

// judge runs a command and checks its findings, its exit code and its first line against the state's file.
func (s *server) judge(t *testing.T, st *state, command string) {
	t.Helper()
	user, args := cmp.Or(st.User, administrator), strings.Fields(command)
	text := s.gpuop(t, user, args...)
	if strings.Contains(text.out+text.log, "goroutine ") {
		t.Errorf("output contains a stack trace:\n%s%s", text.out, text.log)
	}
	answer := s.gpuop(t, user, append(args, "-o", "json")...)
	compare(t, st.Expect[command], wrong(answer.findings(t)))
	code := 0
	if len(st.Expect[command]) > 0 {
		code = 1
		first, _, _ := strings.Cut(text.out, "\n")
		if cause := st.First[command]; cause == "" {
			t.Errorf("the state expects findings of %s: add the text of the first line, %q, to first", command, first)
		} else if !strings.Contains(first, cause) {
			t.Errorf("first line = %q, want one that contains %q", first, cause)
		}
	}
	if answer.code != code || text.code != code {
		t.Errorf("exit code = %d with JSON output and %d with text output, want %d", answer.code, text.code, code)
	}
}

// gathered is the key of a state's expected findings for a gathered folder. A state without it expects those of verify.
const gathered = "gathered"

// TestGathered checks that verify has the same findings for a must-gather folder as for the cluster, unless the state
// lists other ones. Findings about data that the script does not collect are ignored.
func TestGathered(t *testing.T) {
	s := start(t)
	for _, name := range []string{"healthy", "seed-node", "mig-pending", "paused", "wrong-toleration"} {
		t.Run(name, func(t *testing.T) {
			st := load(t, name)
			s.enter(t, st)
			answer := s.gpuop(t, administrator, "verify", "--from", s.gather(t), "-o", "json")
			// "unread" and "prediction" are about data that the script does not collect
			got := wrong(slices.DeleteFunc(answer.findings(t), func(f finding) bool {
				return f.ID == "unread" || f.ID == "prediction"
			}))
			want, other := st.Expect[gathered]
			if !other {
				want = st.Expect["verify"]
			}
			compare(t, want, got)
		})
	}
}

// finding is the part of a finding in the JSON output that the tests read.
type finding struct{ ID, Severity, Node, Subject string }

// findings returns the findings in the JSON output of gpuop.
func (r run) findings(t *testing.T) []finding {
	t.Helper()
	var tree struct{ Findings []finding }
	if err := json.Unmarshal([]byte(r.out), &tree); err != nil {
		t.Fatalf("%v: %s%s", err, r.out, r.log)
	}
	return tree.Findings
}

// wrong lists the errors and warnings as "severity node subject", sorted and without duplicates.
func wrong(findings []finding) []string {
	all := []string{}
	for _, v := range findings {
		if v.Severity != "ok" && v.Severity != "note" {
			all = append(all, fmt.Sprintf("%s %s %s", v.Severity, cmp.Or(v.Node, "-"), v.Subject))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// compare compares findings with the expectations in a state's file. Each finding must match an expectation, and each
// expectation must match a finding. A trailing asterisk in an expectation matches any suffix.
func compare(t *testing.T, want, got []string) {
	t.Helper()
	met := map[string]bool{}
	for _, row := range got {
		i := slices.IndexFunc(want, func(pattern string) bool {
			stem, any := strings.CutSuffix(pattern, "*")
			return pattern == row || any && strings.HasPrefix(row, stem)
		})
		if i < 0 {
			t.Errorf("unexpected finding: %s", row)
			continue
		}
		met[want[i]] = true
	}
	for _, pattern := range want {
		if !met[pattern] {
			t.Errorf("missing finding: %s", pattern)
		}
	}
}
