package process

import (
	"cmp"
	"strconv"
	"strings"
)

// maxJob bounds the id of a job, in bytes: PBS takes a sequence number of 12 digits, an array index
// and the name of a server.
const maxJob = 128

// Job returns the id of the batch job that the text of /proc/<pid>/cgroup names, as the scheduler
// writes it; "" for none. The groups are
//
//   - Slurm's, version 2: …/slurmstepd.scope/job_<id>/step_…, or <node>_slurmstepd.scope where several
//     slurmd run on one host (https://slurm.schedmd.com/cgroup_v2.html);
//   - Slurm's, version 1: …/slurm/uid_<uid>/job_<id>/step_…, or slurm_<node> likewise
//     (https://slurm.schedmd.com/cgroups.html);
//   - PBS's: …/pbs_jobs.service/jobid/<id> (OpenPBS, test/tests/functional/pbs_cgroups_hook.py), and
//     …/pbs_jobs.service/jobs/<id> under version 2. systemd's escapes (\x5b) in an id are resolved.
//
// Of several jobs in one path the outermost is the process's: what is below it may be the work of
// the job's own user. Hierarchies that name different jobs name none.
func Job(text string) string {
	job := ""
	for path := range paths(text) {
		found := jobIn(strings.Split(strings.TrimSuffix(path, " (deleted)"), "/"))
		if found != "" && job != "" && found != job {
			return ""
		}
		job = cmp.Or(job, found)
	}
	return job
}

func jobIn(segments []string) string {
	for i, root := range segments {
		below := segments[i+1:]
		job := ""
		switch {
		case root == "slurmstepd.scope" || strings.HasSuffix(root, "_slurmstepd.scope"):
			job = slurmJob(below)
		case root == "slurm" || strings.HasPrefix(root, "slurm_"):
			if len(below) > 0 && strings.HasPrefix(below[0], "uid_") {
				job = slurmJob(below[1:])
			}
		case root == "pbs_jobs.service":
			if len(below) > 1 && (below[0] == "jobid" || below[0] == "jobs") {
				job = pbsJob(below[1])
			}
		}
		if job != "" {
			return job
		}
	}
	return ""
}

// slurmJob returns the job of the first segment: a number of 32 bits.
func slurmJob(segments []string) string {
	if len(segments) == 0 {
		return ""
	}
	job, ok := strings.CutPrefix(segments[0], "job_")
	if !ok {
		return ""
	}
	if n, err := strconv.ParseUint(job, 10, 32); err != nil || strconv.FormatUint(n, 10) != job {
		return ""
	}
	return job
}

// pbsJob returns a segment that is the id of a job: a number, perhaps an array's index in brackets,
// and the server.
func pbsJob(segment string) string {
	job := unescape(segment)
	if len(job) == 0 || len(job) > maxJob || job[0] < '0' || job[0] > '9' {
		return ""
	}
	for i := range len(job) {
		c := job[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune(".-_[]", rune(c)) {
			return ""
		}
	}
	return job
}

// unescape resolves systemd's escapes, \x and two hexadecimal digits (systemd-escape(1)).
func unescape(s string) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(s, `\x`)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		c, err := strconv.ParseUint(after[:min(2, len(after))], 16, 8)
		if err != nil || len(after) < 2 {
			out.WriteString(`\x`)
			s = after
			continue
		}
		out.WriteByte(byte(c))
		s = after[2:]
	}
}
