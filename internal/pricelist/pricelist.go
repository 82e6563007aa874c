// Package pricelist reads the prices a plan needs from the AWS Price List
// through the caller's own credentials.
//
// Which product carries which price is told by service, attributes and usage
// type. Where that finds no product, or products that disagree, the price is
// reported as not found: it is never guessed.
package pricelist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/pricing/types"

	"github.com/briefing-swarm/briefing-swarm/plan"
)

// API is the part of the Price List service that is called.
type API interface {
	GetProducts(context.Context, *pricing.GetProductsInput, ...func(*pricing.Options)) (*pricing.GetProductsOutput, error)
}

// query says how the product of one price is found.
type query struct {
	id, unit string
	service  string
	// usage is the usage type without the region's prefix; empty matches any.
	usage string
	// match are attributes that must have this value.
	match map[string]string
}

// queries are the prices of plan.Prices that depend on the region.
var queries = []query{
	{"lambda.duration.arm64", "GB-second", "AWSLambda", "", map[string]string{"group": "AWS-Lambda-Duration-ARM"}},
	{"lambda.duration.x86_64", "GB-second", "AWSLambda", "", map[string]string{"group": "AWS-Lambda-Duration"}},
	{"lambda.requests", "request", "AWSLambda", "", map[string]string{"group": "AWS-Lambda-Requests"}},
	{"lambda.ephemeral", "GB-second above 512 MB", "AWSLambda", "", map[string]string{"group": "AWS-Lambda-Storage-Duration"}},
	{"lambda.provisioned.arm64", "GB-second", "AWSLambda", "", map[string]string{"group": "AWS-Lambda-Provisioned-Concurrency-ARM"}},
	{"lambda.provisioned.x86_64", "GB-second", "AWSLambda", "", map[string]string{"group": "AWS-Lambda-Provisioned-Concurrency"}},
	{"lambda.provisioned_duration.arm64", "GB-second", "AWSLambda", "", map[string]string{"group": "AWS-Lambda-Duration-Provisioned-ARM"}},
	{"lambda.provisioned_duration.x86_64", "GB-second", "AWSLambda", "", map[string]string{"group": "AWS-Lambda-Duration-Provisioned"}},
	{"sfn.transition", "state transition", "AmazonStates", "StateTransition", nil},
	{"sfn.express_request", "request", "AmazonStates", "StepFunctions-Request", nil},
	{"sfn.express_duration", "GB-second", "AmazonStates", "StepFunctions-GB-Second", nil},
	{"firehose.ingest", "GB", "AmazonKinesisFirehose", "BilledBytes", map[string]string{"group": "Event-by-Event Processing"}},
	{"firehose.conversion", "GB", "AmazonKinesisFirehose", "", map[string]string{"operation": "DataFormatConversion"}},
	{"s3.storage", "GB-month", "AmazonS3", "TimedStorage-ByteHrs", map[string]string{"volumeType": "Standard"}},
	{"s3.put", "PUT request", "AmazonS3", "Requests-Tier1", nil},
	{"s3.get", "GET request", "AmazonS3", "Requests-Tier2", nil},
	{"ecr.storage", "GB-month", "AmazonECR", "TimedStorage-ByteHrs", nil},
	{"efs.storage", "GB-month", "AmazonEFS", "TimedStorage-ByteHrs", map[string]string{"storageClass": "General Purpose"}},
	{"efs.read", "GB", "AmazonEFS", "ETDataAccess-Bytes", map[string]string{"accessType": "Read"}},
	{"efs.write", "GB", "AmazonEFS", "ETDataAccess-Bytes", map[string]string{"accessType": "Write"}},
	{"dynamodb.write", "write unit", "AmazonDynamoDB", "WriteRequestUnits", nil},
	{"dynamodb.storage", "GB-month", "AmazonDynamoDB", "TimedStorage-ByteHrs", map[string]string{"volumeType": "Amazon DynamoDB - Indexed DataStore"}},
	{"sqs.requests", "request", "AWSQueueService", "Requests-RBP", map[string]string{"queueType": "Standard"}},
	{"nat.hour", "gateway-hour", "AmazonEC2", "NatGateway-Hours", nil},
	{"nat.data", "GB", "AmazonEC2", "NatGateway-Bytes", nil},
	{"vpce.hour", "endpoint-hour per zone", "AmazonVPC", "VpcEndpoint-Hours", nil},
	{"vpce.data", "GB", "AmazonVPC", "VpcEndpoint-Bytes", nil},
	{"logs.ingest", "GB", "AmazonCloudWatch", "DataProcessing-Bytes", nil},
	{"logs.storage", "GB-month", "AmazonCloudWatch", "TimedStorage-ByteHrs", nil},
	{"cloudwatch.metric", "metric-month", "AmazonCloudWatch", "CW:MetricMonitorUsage", nil},
	{"ses.message", "e-mail", "AmazonSES", "Recipients", nil},
	{"ec2.g5.xlarge", "hour", "AmazonEC2", "BoxUsage:g5.xlarge", map[string]string{"instanceType": "g5.xlarge", "operatingSystem": "Linux", "preInstalledSw": "NA", "tenancy": "Shared", "capacitystatus": "Used"}},
	{"ec2.g6.xlarge", "hour", "AmazonEC2", "BoxUsage:g6.xlarge", map[string]string{"instanceType": "g6.xlarge", "operatingSystem": "Linux", "preInstalledSw": "NA", "tenancy": "Shared", "capacitystatus": "Used"}},
}

// NotFound is a price that the Price List did not give.
type NotFound struct{ ID, Region, Reason string }

// Refresh reads the prices of the regions and puts them into a copy of base,
// where they replace those of the same region. Prices it could not find stay
// as they are in base, with their own date and confidence, and are returned
// beside it. at is the time of reading, endpoint where it was read, for the
// file to say so. It fails if a call fails, or if a region gives no price at all.
func Refresh(ctx context.Context, api API, base *plan.Prices, regions []string, at time.Time, endpoint string) (*plan.Prices, []NotFound, error) {
	out := *base
	out.Prices = slices.Clone(base.Prices)
	out.Date = at.UTC().Format("2006-01-02")
	var missing []NotFound
	var said []string
	for _, region := range regions {
		found := 0
		for _, q := range queries {
			p, err := q.fetch(ctx, api, region)
			var absent *absentError
			switch {
			case errors.As(err, &absent):
				missing = append(missing, NotFound{q.id, region, absent.reason})
				continue
			case err != nil:
				return nil, nil, fmt.Errorf("price of %s in %s: %w", q.id, region, err)
			}
			p.Date, p.Confidence = out.Date, plan.Live
			put(&out, p)
			found++
		}
		if found == 0 {
			return nil, nil, fmt.Errorf("the AWS Price List has no price for region %q: check its name, for example eu-west-1", region)
		}
		said = append(said, fmt.Sprintf("%d of %d prices of %s", found, len(queries), region))
	}
	out.From = fmt.Sprintf("%s read from the AWS Price List at %s on %s; all others as of %s: %s",
		strings.Join(said, ", "), endpoint, at.UTC().Format(time.RFC3339), base.Date, base.From)
	return &out, missing, nil
}

// put replaces the price of the same id and region, or adds it beside its kin.
func put(prices *plan.Prices, p plan.Price) {
	at := len(prices.Prices)
	for i, old := range prices.Prices {
		if old.ID != p.ID {
			continue
		}
		at = i + 1
		if old.Region == p.Region {
			if p.FreePerMonth == 0 {
				p.FreePerMonth = old.FreePerMonth // the list has free tiers under "Any"
			}
			prices.Prices[i] = p
			return
		}
	}
	prices.Prices = slices.Insert(prices.Prices, at, p)
}

type absentError struct{ reason string }

func (e *absentError) Error() string { return e.reason }

// product is one entry of the Price List, as far as it matters.
type product struct {
	Product struct {
		SKU        string            `json:"sku"`
		Attributes map[string]string `json:"attributes"`
	} `json:"product"`
	PublicationDate string `json:"publicationDate"`
	Terms           struct {
		OnDemand map[string]struct {
			PriceDimensions map[string]dimension `json:"priceDimensions"`
		} `json:"OnDemand"`
	} `json:"terms"`
}

type dimension struct {
	BeginRange   string            `json:"beginRange"`
	EndRange     string            `json:"endRange"`
	PricePerUnit map[string]string `json:"pricePerUnit"`
}

// fetch reads one price.
func (q query) fetch(ctx context.Context, api API, region string) (plan.Price, error) {
	filters := []types.Filter{term("regionCode", region)}
	for _, field := range sortedKeys(q.match) {
		filters = append(filters, term(field, q.match[field]))
	}
	usage := regexp.MustCompile(`^(?:[A-Z]{2,4}[0-9]?-)?` + regexp.QuoteMeta(q.usage) + `$`)
	pages := pricing.NewGetProductsPaginator(api, &pricing.GetProductsInput{
		ServiceCode: aws.String(q.service), FormatVersion: aws.String("aws_v1"), Filters: filters,
	})
	var price *plan.Price
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return plan.Price{}, err
		}
		for _, text := range page.PriceList {
			var p product
			if err := json.Unmarshal([]byte(text), &p); err != nil {
				return plan.Price{}, fmt.Errorf("read a product of %s: %w", q.service, err)
			}
			if !q.is(p, usage, region) {
				continue
			}
			tiers, free, err := tiersOf(p)
			if err != nil {
				return plan.Price{}, fmt.Errorf("product %s of %s: %w", p.Product.SKU, q.service, err)
			}
			if len(tiers) == 0 {
				continue // nothing on demand: a free allowance or a reservation
			}
			if price != nil {
				if !slices.Equal(price.Tiers, tiers) {
					return plan.Price{}, &absentError{"several products match, at different prices"}
				}
				continue
			}
			price = &plan.Price{
				ID: q.id, Region: region, Unit: q.unit, Tiers: tiers, FreePerMonth: free,
				Source: fmt.Sprintf("AWS Price List, %s, SKU %s", q.service, p.Product.SKU), SourceDate: p.PublicationDate,
			}
		}
	}
	if price == nil {
		return plan.Price{}, &absentError{"no product matches"}
	}
	return *price, nil
}

func term(field, value string) types.Filter {
	return types.Filter{Type: types.FilterTypeTermMatch, Field: aws.String(field), Value: aws.String(value)}
}

// is checks on this side what the filters asked for.
func (q query) is(p product, usage *regexp.Regexp, region string) bool {
	a := p.Product.Attributes
	if code, ok := a["regionCode"]; ok && code != region {
		return false
	}
	for field, value := range q.match {
		if a[field] != value {
			return false
		}
	}
	return q.usage == "" || usage.MatchString(a["usagetype"])
}

// tiersOf reads a product's on-demand tiers. Units that cost nothing before
// those that do are the free tier.
func tiersOf(p product) (tiers []plan.Tier, free float64, err error) {
	type dim struct{ begin, end, usd float64 }
	var dims []dim
	for _, offer := range p.Terms.OnDemand {
		for _, d := range offer.PriceDimensions {
			text, ok := d.PricePerUnit["USD"]
			if !ok {
				return nil, 0, errors.New("a price is not in USD")
			}
			usd, err := number(text)
			if err != nil {
				return nil, 0, fmt.Errorf("price: %w", err)
			}
			var begin, end float64
			if d.BeginRange != "" {
				if begin, err = number(d.BeginRange); err != nil {
					return nil, 0, fmt.Errorf("begin of a tier: %w", err)
				}
			}
			if d.EndRange != "" && d.EndRange != "Inf" {
				if end, err = number(d.EndRange); err != nil {
					return nil, 0, fmt.Errorf("end of a tier: %w", err)
				}
			}
			dims = append(dims, dim{begin, end, usd})
		}
	}
	sort.Slice(dims, func(i, j int) bool { return dims[i].begin < dims[j].begin })
	if len(dims) > 0 && dims[0].usd == 0 && dims[0].end > 0 {
		free, dims = dims[0].end, dims[1:]
	}
	at := free
	for i, d := range dims {
		if d.begin != at || (d.end == 0) != (i == len(dims)-1) {
			return nil, 0, errors.New("the tiers leave a gap or overlap")
		}
		at = d.end
		tiers = append(tiers, plan.Tier{UpTo: d.end, Usd: d.usd})
	}
	if len(tiers) == 1 && tiers[0].Usd == 0 {
		return nil, free, nil
	}
	return tiers, free, nil
}

// number reads a finite number of 0 or more.
func number(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 0) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is not a number of 0 or more", s)
	}
	return v, nil
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
