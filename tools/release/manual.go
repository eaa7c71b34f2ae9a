package main

import (
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

// manual returns the manual page dcgm-exporter(1), in the macros of man(7).
func manual(settings []config.Setting, version, date string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `.TH DCGM\-EXPORTER 1 "%s" "%s" "Monitoring"
.nh
.ad l
.SH NAME
dcgm\-exporter \- Prometheus exporter for NVIDIA GPUs
.SH SYNOPSIS
.B dcgm\-exporter
.RI [ flags ]
.br
.B dcgm\-exporter
.I command
.RI [ flags ]
.RI [ arguments ]
.SH DESCRIPTION
Serves metrics of NVIDIA GPUs to Prometheus, on port 9400 under
.IR /metrics .
It reads DCGM, or NVML where there is no DCGM, and waits where there is neither.
.PP
A flag wins over its variable, the variable over the YAML file, the file over the default. A list is separated by commas.
Flags take one dash or two, and their value behind a blank or an equals sign.
.SH COMMANDS
`, roff(date), roff(version))
	for _, c := range command.List() {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(c.Name), roff(c.Summary))
	}
	b.WriteString(".SH OPTIONS\n.TP\n.BR \\-\\-help \", \" \\-h\nPrint the settings.\n.TP\n.BR \\-\\-version \", \" \\-v\nPrint what the program was built from.\n")
	section := ""
	for _, s := range settings {
		if s.Section != section {
			section = s.Section
			fmt.Fprintf(&b, ".SS %s\n", roff(section))
		}
		b.WriteString(".TP\n")
		heading := s.Flags
		if len(heading) == 0 {
			heading = s.Variables[:1]
		}
		for i, f := range heading {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(`\fB` + roff(f) + `\fR`)
		}
		if !s.Switch && len(s.Flags) > 0 {
			b.WriteString(` \fIvalue\fR`)
		}
		b.WriteString("\n" + roff(s.Help) + "\n")
		if s.Default != "" && !s.Switch {
			b.WriteString("Default: " + roff(s.Default) + ".\n")
		}
		if len(s.Flags) > 0 {
			for _, v := range s.Variables {
				b.WriteString(`Variable: \fB` + roff(v) + "\\fR.\n")
			}
		}
		if s.Key != "" {
			b.WriteString(`In the YAML file: \fB` + roff(s.Key) + "\\fR.\n")
		}
	}
	b.WriteString(`.SH FILES
.TP
.I /etc/dcgm\-exporter/*.csv
Counters files: which metrics are served.
.TP
.IR /etc/default/dcgm\-exporter ", " /etc/sysconfig/dcgm\-exporter
Variables of the systemd unit, in packages for Debian and for RPM.
.TP
.I /usr/share/dcgm\-exporter/dcgm\-exporter.service.d
Drop\-ins of the unit: TLS, the kernel's log, labels of containers, profiling.
.TP
.I /var/lib/dcgm\-exporter
Counters of events that outlast a restart.
.SH SIGNALS
.TP
.B SIGHUP
Reload the configuration.
.TP
.BR SIGUSR1 ", " SIGUSR2
Release the driver, and acquire it again.
.TP
.BR SIGTERM ", " SIGINT
End, with every driver handle closed, within five seconds.
.SH EXIT STATUS
0 after a requested end; 1 for a wrong setting or a port that is taken; 2 where a command could not do its work; 3 where a driver
call did not return; 4 where something else did not end in time.
.SH SEE ALSO
.UR https://github.com/gpu\-telemetry/dcgm\-exporter
.UE
`)
	return b.String()
}

// roff escapes a text for the body of a page.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}
