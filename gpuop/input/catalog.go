package input

import "github.com/gpu-telemetry/dcgm-exporter/gpuop/check"

const posix = "POSIX shell command language"

// Checks for scripts and Terraform files.
var (
	Skipped = check.New("not-judged", check.Note, "A value or text was not checked. The message says why.",
		"Check it by hand, or give gpuop the finished file.", check.Gpuop)

	shellSyntax = check.New("shell-syntax", check.Error, "The shell cannot parse the script.",
		"Correct the line.", posix)

	terraformSyntax = check.New("terraform-syntax", check.Error, "Terraform cannot parse the file.",
		"Correct the line.", "HCL native syntax specification")
	brokenContinuation = check.New("broken-continuation", check.Error,
		`The command ends early: the line before has no \ at its end, or a space after it.`,
		`End each line of the command with \ and no space after it.`, posix)
)
