package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

const usage = `usage: release sbom --name NAME --version VERSION --date DATE PROGRAM | oci:FOLDER
       release notes VERSION < CHANGELOG.md
       release chart FOLDER TAG INTO
       release provenance --version VERSION --revision COMMIT FILE…
`

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("missing command\n%s", usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	name := flags.String("name", "", "")
	version := flags.String("version", "", "")
	revision := flags.String("revision", "", "")
	date := flags.String("date", "", "")
	if err := flags.Parse(args[1:]); err != nil {
		return fmt.Errorf("%w\n%s", err, usage)
	}
	rest := flags.Args()
	switch {
	case args[0] == "sbom" && len(rest) == 1 && *name != "":
		return writeSBOM(out, subject{*name, *version, *date}, rest[0])
	case args[0] == "chart" && len(rest) == 3:
		return packChart(rest[0], rest[1], rest[2])
	case args[0] == "notes" && len(rest) == 1:
		return writeNotes(out, in, rest[0])
	case args[0] == "provenance" && len(rest) > 0:
		return writeProvenance(out, build{*version, *revision}, rest)
	}
	return fmt.Errorf("%s: unknown command or wrong arguments\n%s", strings.Join(args, " "), usage)
}
