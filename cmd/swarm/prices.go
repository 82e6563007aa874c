package main

import "github.com/spf13/cobra"

func newPricesCmd() *cobra.Command {
	return &cobra.Command{Use: "prices"}
}
