package process_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/process"
)

func TestJob(t *testing.T) {
	long := "1." + strings.Repeat("s", 126)
	for name, test := range map[string]struct{ text, want string }{
		"Slurm v2":                     {"0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n", "123"},
		"Slurm v2, a batch step":       {"0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_special\n", "7"},
		"Slurm v2, several slurmd":     {"0::/system.slice/node-1_slurmstepd.scope/job_123/step_0/slurm", "123"},
		"Slurm v2, the job itself":     {"0::/system.slice/slurmstepd.scope/job_4294967295", "4294967295"},
		"Slurm v2, a group removed":    {"0::/system.slice/slurmstepd.scope/job_123 (deleted)\n", "123"},
		"Slurm v2, slurmd in a pod":    {"0::/kubepods.slice/kubepods-pod" + slice + ".slice/cri-containerd-" + id + ".scope/system.slice/slurmstepd.scope/job_9/step_0", "9"},
		"Slurm v1":                     {"11:devices:/slurm/uid_1000/job_123/step_0/task_0\n4:memory:/slurm/uid_1000/job_123/step_0\n1:name=systemd:/system.slice/slurmd.service\n", "123"},
		"Slurm v1, several slurmd":     {"11:devices:/slurm_node-1/uid_1000/job_123/step_batch\n", "123"},
		"hybrid":                       {"5:freezer:/slurm/uid_0/job_8/step_extern\n0::/system.slice/slurmd.service\n", "8"},
		"PBS":                          {"9:cpuset:/pbs_jobs.service/jobid/123.server.example.org\n1:name=systemd:/system.slice/pbs.service\n", "123.server.example.org"},
		"PBS v2":                       {"0::/pbs_jobs.service/jobs/123.server/sub\n", "123.server"},
		"PBS, an array's":              {"9:cpuset:/pbs_jobs.service/jobid/123[4].server\n", "123[4].server"},
		"PBS, escaped":                 {`9:cpuset:/pbs_jobs.service/jobid/123\x5b4\x5d\x2eserver` + "\n", "123[4].server"},
		"PBS, as long as may be":       {"0::/pbs_jobs.service/jobid/" + long, long},
		"a job of a job's user":        {"0::/system.slice/slurmstepd.scope/job_1/step_0/user/slurmstepd.scope/job_2", "1"},
		"none":                         {"0::/user.slice/user-1000.slice/session-3.scope\n", ""},
		"a pod":                        {"0::/kubepods/pod" + pod + "/" + id, ""},
		"Slurm's own":                  {"0::/system.slice/slurmstepd.scope/system\n", ""},
		"no root":                      {"0::/user.slice/job_123/step_0\n0::/job_1", ""},
		"v1 without the user":          {"3:cpu:/slurm/job_123/step_0", ""},
		"not a number":                 {"0::/system.slice/slurmstepd.scope/job_12x/step_0", ""},
		"no number":                    {"0::/system.slice/slurmstepd.scope/job_/step_0", ""},
		"a signed number":              {"0::/system.slice/slurmstepd.scope/job_+5", ""},
		"another way to write 5":       {"0::/system.slice/slurmstepd.scope/job_05", ""},
		"more than 32 bits":            {"0::/system.slice/slurmstepd.scope/job_4294967296", ""},
		"two jobs":                     {"11:devices:/slurm/uid_1/job_1\n4:memory:/slurm/uid_1/job_2\n", ""},
		"two jobs and one again":       {"3:a:/slurm/uid_1/job_1\n2:b:/slurm/uid_1/job_2\n1:c:/slurm/uid_1/job_1\n", ""},
		"PBS without a job":            {"9:cpuset:/pbs_jobs.service/jobid\n", ""},
		"PBS, another folder":          {"9:cpuset:/pbs_jobs.service/orphans/123.server\n", ""},
		"PBS, no number":               {"9:cpuset:/pbs_jobs.service/jobid/server\n", ""},
		"PBS, too long":                {"0::/pbs_jobs.service/jobid/" + long + "s", ""},
		"PBS, an escaped line feed":    {`0::/pbs_jobs.service/jobid/1\x0a2`, ""},
		"PBS, a cut escape":            {`0::/pbs_jobs.service/jobid/1\x2`, ""},
		"PBS, an escape that is none":  {`0::/pbs_jobs.service/jobid/1\xzz`, ""},
		"PBS, what is no letter of id": {"0::/pbs_jobs.service/jobid/1{a=\"b\"}", ""},
		"empty":                        {"", ""},
		"cut":                          {"0:", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := process.Job(test.text); got != test.want {
				t.Errorf("job %q, want %q", got, test.want)
			}
		})
	}
}

func FuzzJob(f *testing.F) {
	f.Add("0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0", uint32(1), uint8(0))
	f.Add(`9:cpuset:/pbs_jobs.service/jobid/123\x5b4\x5d.server`, uint32(7), uint8(3))
	f.Add("1:a:/slurm/uid_1/job_1\n2:b:/slurm/uid_1/job_2", uint32(0), uint8(2))
	f.Fuzz(func(t *testing.T, text string, id uint32, choice uint8) {
		job := process.Job(text)
		if len(job) > 128 || strings.Trim(job, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_[]") != "" {
			t.Errorf("%q gives the job %q", text, job)
		}
		shapes := []string{
			"0::/system.slice/slurmstepd.scope/job_%d/step_0/user/task_0\n", "0::/system.slice/n_slurmstepd.scope/job_%d",
			"3:cpu:/slurm/uid_1/job_%d/step_1\n0::/\n", "3:cpu:/slurm_n/uid_1/job_%d", "2:cpuset:/pbs_jobs.service/jobid/%d", "0::/pbs_jobs.service/jobs/%d",
		}
		shape := fmt.Sprintf(shapes[int(choice)%len(shapes)], id)
		if got := process.Job(shape); got != fmt.Sprint(id) {
			t.Errorf("%q gives the job %q", shape, got)
		}
	})
}

func TestJobOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProc()
		r := process.NewResolver(p)
		want := func(pid uint32, job, reason string) {
			t.Helper()
			if got, err := r.JobOf(pid); got != job || gpu.Reason(err) != reason {
				t.Errorf("JobOf(%d) = %q, %v; want %q, %q", pid, got, err, job, reason)
			}
		}
		p.put(70, 500, "/system.slice/slurmstepd.scope/job_1/step_0")
		p.put(71, 500, "/user.slice")
		want(70, "1", "")
		want(70, "1", "")
		if n := p.reads["70/cgroup"]; n != 1 {
			t.Errorf("the group of one process was read %d times", n)
		}
		if uid, err := r.PodOf(70); uid != "" || err != nil {
			t.Errorf("pod %q, %v", uid, err)
		}
		want(71, "", "")
		want(72, "", "") // there is none

		// It joins a job while it runs.
		p.put(71, 500, "/pbs_jobs.service/jobid/5.server")
		want(71, "5.server", "")
		delete(p.MapFS, "71/stat")
		delete(p.MapFS, "71/cgroup")
		want(71, "5.server", "")

		// The id comes again, in another job.
		p.put(70, 900, "/system.slice/slurmstepd.scope/job_2/step_0")
		want(70, "2", "")

		// It ends: known for one more read on every GPU, and then no more.
		delete(p.MapFS, "70/stat")
		delete(p.MapFS, "70/cgroup")
		for range 8 {
			want(70, "2", "")
		}
		time.Sleep(30 * time.Second)
		want(70, "", "")

		p.put(73, 1, "/user.slice")
		p.fail["73/cgroup"] = fs.ErrPermission
		want(73, "", "permission")
	})
	p := newProc()
	delete(p.MapFS, "2/stat")
	if job, err := process.NewResolver(p).JobOf(1); job != "" || gpu.Reason(err) != "pid_namespace" {
		t.Errorf("in another PID namespace: %q, %v", job, err)
	}
}
