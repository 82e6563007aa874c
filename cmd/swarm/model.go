package main

import "github.com/spf13/cobra"

func newModelCmd() *cobra.Command {
	return &cobra.Command{Use: "model"}
}
