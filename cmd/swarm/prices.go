package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/spf13/cobra"

	"github.com/briefing-swarm/briefing-swarm/internal/pricelist"
	"github.com/briefing-swarm/briefing-swarm/plan"
)

func newPricesCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prices",
		Short: "Show the prices plans are made with, or read new ones from AWS",
		Args:  usageArgs(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPricesListCmd(), newPricesRefreshCmd())
	return cmd
}

func newPricesListCmd() *cobra.Command {
	var region, file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the prices of a region, with where they are from and how sure they are",
		Example: `  swarm prices list --region eu-central-1
  swarm prices list --prices prices.json --json`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			prices := plan.ShippedPrices()
			if file != "" {
				var err error
				if prices, err = readPricesFile(file); err != nil {
					return err
				}
			}
			if asJSON {
				return writePrices(cmd.OutOrStdout(), prices)
			}
			return listPrices(cmd.OutOrStdout(), prices, region)
		},
	}
	cmd.Flags().StringVar(&region, "region", "us-east-1", "an AWS region of the price file")
	cmd.Flags().StringVar(&file, "prices", "", "a price file, instead of the one that ships")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the whole price file")
	return cmd
}

func listPrices(out io.Writer, prices *plan.Prices, region string) error {
	if known := prices.Regions(); !slices.Contains(known, region) {
		return &plan.UnknownRegionError{Region: region, Known: known}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PRICE\tUSD\tFOR\tREAD\tCONFIDENCE")
	seen := map[string]bool{}
	for _, p := range prices.Prices {
		if seen[p.ID] {
			continue
		}
		seen[p.ID] = true
		p = prices.Lookup(p.ID, region)
		usd, per := "not known", p.Unit
		if p.Known() {
			usd = strconv.FormatFloat(p.Tiers[0].Usd, 'f', -1, 64)
			if len(p.Tiers) > 1 {
				usd += fmt.Sprintf(" (%d tiers)", len(p.Tiers))
			}
			if p.Per > 1 {
				per = plan.FormatNumber(p.Per) + " " + p.Unit + "s"
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", p.ID, usd, per, p.Date, p.Confidence)
	}
	return w.Flush()
}

// pricingClient is replaced by a test.
var pricingClient = func(ctx context.Context, endpointRegion string) (pricelist.API, error) {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(endpointRegion))
	if err != nil {
		return nil, fmt.Errorf("load AWS credentials: %w", err)
	}
	return pricing.NewFromConfig(cfg, func(o *pricing.Options) { o.RetryMaxAttempts = 5; o.Region = endpointRegion }), nil
}

func newPricesRefreshCmd() *cobra.Command {
	var regions []string
	var out, base, endpoint string
	cmd := &cobra.Command{
		Use:   "refresh",
		Short: "Read prices from the AWS Price List, with your own credentials",
		Long: `Read the prices of one or more regions from the AWS Price List and write a price
file for 'swarm plan --prices'. Credentials are taken where the AWS tools take
them (environment, profile, role) and need pricing:GetProducts and nothing else.

The file says when and where each price was read. A price the list does not give
without doubt stays as it was, with its own date and confidence, and is named.
Prices of managed APIs and machines elsewhere are not in the list and stay too.`,
		Example: `  swarm prices refresh --region us-east-1 --out prices.json
  AWS_PROFILE=billing swarm prices refresh --region sa-east-1,eu-west-1 --out prices.json
  swarm plan --region sa-east-1 --prices prices.json`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			prices := plan.ShippedPrices()
			if base != "" {
				var err error
				if prices, err = readPricesFile(base); err != nil {
					return err
				}
			}
			api, err := pricingClient(cmd.Context(), endpoint)
			if err != nil {
				return err
			}
			where := "api.pricing." + endpoint
			fresh, missing, err := pricelist.Refresh(cmd.Context(), api, prices, regions, time.Now(), where)
			if err != nil {
				return fmt.Errorf("refresh prices: %w", err)
			}
			for _, m := range missing {
				fmt.Fprintf(cmd.ErrOrStderr(), "kept as it was: %s in %s (%s)\n", m.ID, m.Region, m.Reason)
			}
			if out == "-" {
				return writePrices(cmd.OutOrStdout(), fresh)
			}
			if err := writeWhole(out, func(w io.Writer) error { return writePrices(w, fresh) }); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s: %s\n", out, fresh.From)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&regions, "region", []string{"us-east-1"}, "regions to read, comma-separated")
	f.StringVar(&out, "out", "prices.json", "file to write; - is standard output")
	f.StringVar(&base, "prices", "", "price file to start from, instead of the one that ships")
	f.StringVar(&endpoint, "endpoint-region", "us-east-1", "where to ask: us-east-1, eu-central-1 or ap-south-1 serve the Price List")
	return cmd
}

func writePrices(w io.Writer, prices *plan.Prices) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(prices)
}
