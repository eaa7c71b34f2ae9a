package cli

import (
	"github.com/spf13/cobra"
)

func newLintCommand(e *env) *cobra.Command {
	return &cobra.Command{Use: "lint"}
}
