package main

import "github.com/spf13/cobra"

func newLintCmd() *cobra.Command {
	return &cobra.Command{Use: "lint"}
}
