package plan

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
)

// PricesSchema names the version of the price file.
const PricesSchema = "briefing-swarm/prices/1"

// How sure a figure is.
const (
	Verified   = "verified"   // read in a copy of the source itself
	Secondary  = "secondary"  // read in someone else's text or code
	Unverified = "unverified" // from memory, nothing was read
	StandIn    = "stand-in"   // another region's price, the region's own is not known
	Live       = "live"       // read from the AWS Price List by the user
)

// AnyRegion is the region of a price that does not depend on one.
const AnyRegion = "*"

// baseRegion is where a missing price is taken from, marked as StandIn.
const baseRegion = "us-east-1"

// Prices is a price file.
type Prices struct {
	Schema   string `json:"schema"`
	Currency string `json:"currency"`
	// Date is when the file was put together, as YYYY-MM-DD.
	Date string `json:"date"`
	// From says what it was put together from.
	From   string  `json:"from"`
	Prices []Price `json:"prices"`
}

// Price is one price in one region.
type Price struct {
	ID     string `json:"id"`
	Region string `json:"region"`
	Unit   string `json:"unit"`
	// Per is how many units a tier's Usd buys; 0 is 1.
	Per float64 `json:"per,omitempty"`
	// Tiers are ascending; none means that the price was looked for and is not
	// known, and that no other region's may stand in.
	Tiers []Tier `json:"tiers"`
	// FreePerMonth is the account's free tier, in units.
	FreePerMonth float64 `json:"free_per_month,omitempty"`
	Source       string  `json:"source"`
	// SourceDate is the date of the source, in its own words.
	SourceDate string `json:"source_date,omitempty"`
	// Date is when the source was read, as YYYY-MM-DD.
	Date       string `json:"date"`
	Confidence string `json:"confidence"`
	Note       string `json:"note,omitempty"`
}

// Tier is the price of the units up to UpTo a month; the last tier has UpTo 0
// and no end.
type Tier struct {
	UpTo float64 `json:"up_to,omitempty"`
	Usd  float64 `json:"usd"`
}

//go:embed prices.json
var shippedPrices []byte

// ShippedPrices is the price file that comes with this version.
var ShippedPrices = sync.OnceValue(func() *Prices {
	p, err := ReadPrices(shippedPrices)
	if err != nil {
		panic(err) // a test reads the same bytes
	}
	return p
})

// ReadPrices reads a price file and checks all of it.
func ReadPrices(data []byte) (*Prices, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var p Prices
	if err := dec.Decode(&p); err != nil {
		return nil, fmt.Errorf("read price file: %w", err)
	}
	if p.Schema != PricesSchema {
		return nil, fmt.Errorf("read price file: schema is %q, want %q", p.Schema, PricesSchema)
	}
	if p.Currency != "USD" {
		return nil, fmt.Errorf("read price file: currency is %q, want USD", p.Currency)
	}
	var errs []error
	seen := map[[2]string]bool{}
	for i, price := range p.Prices {
		key := [2]string{price.ID, price.Region}
		if seen[key] {
			errs = append(errs, fmt.Errorf("price %d: %s in %s is there twice", i, price.ID, price.Region))
		}
		seen[key] = true
		if err := price.check(); err != nil {
			errs = append(errs, fmt.Errorf("price %d (%s in %s): %w", i, price.ID, price.Region, err))
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("read price file: %w", errors.Join(errs...))
	}
	return &p, nil
}

func (p Price) check() error {
	switch {
	case p.ID == "" || p.Region == "" || p.Unit == "":
		return errors.New("id, region and unit must be given")
	case p.Source == "" || p.Date == "":
		return errors.New("source and date must be given")
	case !slices.Contains([]string{Verified, Secondary, Unverified, Live}, p.Confidence):
		return fmt.Errorf("confidence is %q, want live, verified, secondary or unverified", p.Confidence)
	case !(p.Per >= 0) || math.IsInf(p.Per, 0):
		return fmt.Errorf("per is %v, want a number above 0", p.Per)
	case !(p.FreePerMonth >= 0) || math.IsInf(p.FreePerMonth, 0):
		return fmt.Errorf("free_per_month is %v, want 0 or more", p.FreePerMonth)
	}
	from := 0.0
	for i, t := range p.Tiers {
		if !(t.Usd >= 0) || t.Usd > 1e6 {
			return fmt.Errorf("tier %d costs %v, want 0 to 1,000,000 USD", i+1, t.Usd)
		}
		last := i == len(p.Tiers)-1
		if last != (t.UpTo == 0) {
			return fmt.Errorf("tier %d: all tiers but the last need up_to", i+1)
		}
		if !last && !(t.UpTo > from) {
			return fmt.Errorf("tier %d ends at %v, want more than %v", i+1, t.UpTo, from)
		}
		from = t.UpTo
	}
	return nil
}

// Known says whether there is a price at all.
func (p Price) Known() bool { return len(p.Tiers) > 0 }

// Unit1 is the price of one unit in the first tier.
func (p Price) Unit1() float64 {
	if !p.Known() {
		return 0
	}
	return p.Tiers[0].Usd / p.per()
}

func (p Price) per() float64 {
	if p.Per == 0 {
		return 1
	}
	return p.Per
}

// Cost is what quantity units cost, each tier at its own price. It is 0 for a
// price that is not known.
func (p Price) Cost(quantity float64) float64 {
	var usd, from float64
	for _, t := range p.Tiers {
		if quantity <= from {
			break
		}
		to := quantity
		if t.UpTo > 0 {
			to = min(to, t.UpTo)
		}
		usd += (to - from) * t.Usd / p.per()
		from = t.UpTo
	}
	return usd
}

// UnknownRegionError is a region that the price file does not hold.
type UnknownRegionError struct {
	Region string
	Known  []string
}

func (e *UnknownRegionError) Error() string {
	return fmt.Sprintf("no prices for region %q; known are %s. Add it with your own credentials: "+
		"swarm prices refresh --region %s --out prices.json, then swarm plan --prices prices.json",
		e.Region, strings.Join(e.Known, ", "), e.Region)
}

// Regions are the regions that have at least a Lambda price, sorted.
func (p *Prices) Regions() []string {
	set := map[string]bool{}
	for _, price := range p.Prices {
		if strings.HasPrefix(price.ID, "lambda.duration.") && price.Known() {
			set[price.Region] = true
		}
	}
	regions := make([]string, 0, len(set))
	for r := range set {
		regions = append(regions, r)
	}
	sort.Strings(regions)
	return regions
}

// Lookup finds a price: the region's own, or one that holds everywhere, or
// that of us-east-1 with its confidence set to StandIn. A price that was looked
// for in the region and not found has no stand-in; see Price.Known.
func (p *Prices) Lookup(id, region string) Price {
	var base, found *Price
	for i := range p.Prices {
		c := &p.Prices[i]
		if c.ID != id {
			continue
		}
		switch c.Region {
		case region, AnyRegion:
			found = c
		case baseRegion:
			base = c
		}
	}
	switch {
	case found != nil:
		return *found
	case base != nil && base.Known():
		s := *base
		s.Confidence = StandIn
		s.Note = "price of " + baseRegion + ", the price of " + region + " is not known"
		return s
	}
	return Price{ID: id, Region: region, Unit: "unit", Source: "not found", Date: p.Date, Confidence: Unverified}
}

// LambdaCost is what gbSeconds of Lambda duration cost in a month, tier by
// tier. The region must be one of prices.Regions.
func LambdaCost(gbSeconds float64, architecture, region string, prices *Prices) (float64, error) {
	if !slices.Contains(prices.Regions(), region) {
		return 0, &UnknownRegionError{Region: region, Known: prices.Regions()}
	}
	return prices.Lookup("lambda.duration."+architecture, region).Cost(gbSeconds), nil
}

// BilledSec rounds a duration up to Lambda's millisecond.
func BilledSec(sec float64) float64 {
	// A batch of 32 times 3 s must stay 96 s: the tolerance swallows the last bits
	// of floating point, nothing that could be measured.
	return math.Ceil(sec*1000-1e-6) / 1000
}

// BreakEvenPerHour is the number of requests an hour from which an always-on
// machine of usdPerHour costs less than paying usdPerRequest, if it can serve
// that many.
func BreakEvenPerHour(usdPerHour, usdPerRequest float64) float64 {
	if usdPerRequest <= 0 {
		return math.MaxFloat64
	}
	return usdPerHour / usdPerRequest
}
