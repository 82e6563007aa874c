package pricelist

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/google/go-cmp/cmp"

	"github.com/briefing-swarm/briefing-swarm/plan"
)

// server answers GetProducts out of testdata/products.json, which holds
// products in the shape of the Price List, two to a page. It ignores the filters
// but the service and the region, as a careless service might.
type server struct {
	t        *testing.T
	products []json.RawMessage
	fail     int // so many calls are answered with 500 first
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if got := r.Header.Get("X-Amz-Target"); got != "AWSPriceListService.GetProducts" {
		s.t.Errorf("called %q", got)
	}
	if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=KEY/") {
		s.t.Error("the request is not signed with the caller's credentials")
	}
	if s.fail > 0 {
		s.fail--
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	var in struct {
		ServiceCode, NextToken string
		Filters                []struct{ Type, Field, Value string }
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		s.t.Error(err)
	}
	region := ""
	for _, f := range in.Filters {
		if f.Type != "TERM_MATCH" {
			s.t.Errorf("filter %s has type %s", f.Field, f.Type)
		}
		if f.Field == "regionCode" {
			region = f.Value
		}
	}
	var matched []string
	for _, raw := range s.products {
		var p struct {
			ServiceCode string `json:"serviceCode"`
			product
		}
		if err := json.Unmarshal(raw, &p); err != nil {
			s.t.Fatal(err)
		}
		if p.ServiceCode == in.ServiceCode && p.product.Product.Attributes["regionCode"] == region {
			matched = append(matched, string(raw))
		}
	}
	from := 0
	if in.NextToken != "" {
		if _, err := fmt.Sscan(in.NextToken, &from); err != nil {
			s.t.Error(err)
		}
	}
	out := map[string]any{"FormatVersion": "aws_v1", "PriceList": matched[min(from, len(matched)):min(from+2, len(matched))]}
	if from+2 < len(matched) {
		out["NextToken"] = fmt.Sprint(from + 2)
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	if err := json.NewEncoder(w).Encode(out); err != nil {
		s.t.Error(err)
	}
}

func client(t *testing.T, s *server) *pricing.Client {
	t.Helper()
	data, err := os.ReadFile("testdata/products.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &s.products); err != nil {
		t.Fatal(err)
	}
	s.t = t
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return pricing.New(pricing.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(web.URL), Credentials: credentials.NewStaticCredentialsProvider("KEY", "SECRET", ""),
	})
}

var noon = time.Date(2026, 12, 24, 12, 0, 0, 0, time.UTC)

func TestRefresh(t *testing.T) {
	t.Parallel()
	got, missing, err := Refresh(context.Background(), client(t, &server{fail: 1}), plan.ShippedPrices(), []string{"sa-east-1"}, noon, "https://prices.example")
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.ReadPrices(data); err != nil {
		t.Errorf("the result is no price file: %v", err)
	}
	want := map[string]plan.Price{
		"lambda.duration.arm64": {
			ID: "lambda.duration.arm64", Region: "sa-east-1", Unit: "GB-second",
			Tiers:  []plan.Tier{{UpTo: 7.5e9, Usd: 1.33334e-05}, {UpTo: 18.75e9, Usd: 1.20001e-05}, {Usd: 1.06667e-05}},
			Source: "AWS Price List, AWSLambda, SKU ARMDURATION00001", SourceDate: "2026-12-20T18:26:32Z", Date: "2026-12-24", Confidence: plan.Live,
		},
		"lambda.duration.x86_64": {
			ID: "lambda.duration.x86_64", Region: "sa-east-1", Unit: "GB-second", Tiers: []plan.Tier{{Usd: 1.66667e-05}},
			Source: "AWS Price List, AWSLambda, SKU X86DURATION00001", SourceDate: "2026-12-20T18:26:32Z", Date: "2026-12-24", Confidence: plan.Live,
		},
		"sfn.transition": {
			ID: "sfn.transition", Region: "sa-east-1", Unit: "state transition", Tiers: []plan.Tier{{Usd: 3.75e-05}}, FreePerMonth: 4000,
			Source: "AWS Price List, AmazonStates, SKU TRANSITION000001", SourceDate: "2026-12-20T18:26:32Z", Date: "2026-12-24", Confidence: plan.Live,
		},
	}
	for _, p := range got.Prices {
		if w, ok := want[p.ID]; ok && p.Region == "sa-east-1" {
			if diff := cmp.Diff(w, p); diff != "" {
				t.Errorf("%s (-want +got):\n%s", p.ID, diff)
			}
			delete(want, p.ID)
		}
	}
	if len(want) > 0 {
		t.Errorf("not in the file: %v", want)
	}
	reasons := map[string]string{}
	for _, m := range missing {
		reasons[m.ID] = m.Reason
	}
	if len(missing) != len(queries)-3 || !strings.Contains(reasons["s3.put"], "different prices") || !strings.Contains(reasons["ses.message"], "no product") {
		t.Errorf("missing are %+v, want all but three, S3 for two prices and SES for none", missing)
	}
	if len(got.Prices) != len(plan.ShippedPrices().Prices)+3 {
		t.Errorf("the file has %d prices, want those that shipped and three more", len(got.Prices))
	}
	for _, part := range []string{"3 of 33 prices of sa-east-1", "https://prices.example", "2026-12-24T12:00:00Z", plan.ShippedPrices().Date} {
		if !strings.Contains(got.From, part) {
			t.Errorf("the file says it is from %q, want it to name %q", got.From, part)
		}
	}
	// The region can now be planned for, and what is live says so.
	in := plan.Defaults()
	in.Region, in.Prices = "sa-east-1", got
	p, err := plan.Estimate(in)
	if err != nil {
		t.Fatal(err)
	}
	for id, confidence := range map[string]string{"lambda.decode": plan.Live, "ses.messages": plan.StandIn} {
		if l, ok := p.Cost.Line(id); !ok || l.Confidence != confidence {
			t.Errorf("%s is %s, want %s", id, l.Confidence, confidence)
		}
	}
}

func TestRefreshReplaces(t *testing.T) {
	t.Parallel()
	base := plan.ShippedPrices()
	before := base.Lookup("lambda.duration.arm64", "us-west-2")
	got, _, err := Refresh(context.Background(), client(t, &server{}), base, []string{"us-west-2"}, noon, "x")
	if err != nil {
		t.Fatal(err)
	}
	after := got.Lookup("lambda.duration.arm64", "us-west-2")
	if before.Confidence != plan.Unverified || after.Confidence != plan.Live || after.FreePerMonth != before.FreePerMonth {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	if len(got.Prices) != len(base.Prices) {
		t.Errorf("%d prices became %d", len(base.Prices), len(got.Prices))
	}
	if base.Lookup("lambda.duration.arm64", "us-west-2").Confidence != plan.Unverified {
		t.Error("the prices that ship were changed")
	}
}

func TestRefreshOfNoRegion(t *testing.T) {
	t.Parallel()
	_, _, err := Refresh(context.Background(), client(t, &server{}), plan.ShippedPrices(), []string{"mars-north-1"}, noon, "x")
	if err == nil || !strings.Contains(err.Error(), "mars-north-1") {
		t.Errorf("error is %v, want one that names the region", err)
	}
}

func TestRefreshFails(t *testing.T) {
	t.Parallel()
	api := client(t, &server{fail: 1000})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, _, err := Refresh(ctx, api, plan.ShippedPrices(), []string{"us-west-2"}, noon, "x"); err == nil {
		t.Error("a service that always fails gives a price file")
	}
}

// Every price of the shipped file that depends on the region can be refreshed.
func TestQueriesCoverTheFile(t *testing.T) {
	t.Parallel()
	for _, p := range plan.ShippedPrices().Prices {
		if p.Region == plan.AnyRegion {
			continue
		}
		i := slices.IndexFunc(queries, func(q query) bool { return q.id == p.ID })
		if i < 0 {
			t.Errorf("no query for %s", p.ID)
		} else if queries[i].unit != p.Unit {
			t.Errorf("%s is refreshed as %q, the file has %q", p.ID, queries[i].unit, p.Unit)
		}
	}
}

func FuzzTiers(f *testing.F) {
	f.Add([]byte(`{"terms":{"OnDemand":{"a":{"priceDimensions":{"b":{"beginRange":"0","endRange":"Inf","pricePerUnit":{"USD":"0.5"}}}}}}}`))
	f.Add([]byte(`{"terms":{"OnDemand":{"a":{"priceDimensions":{"b":{"beginRange":"0","endRange":"4000","pricePerUnit":{"USD":"0"}},"c":{"beginRange":"4000","endRange":"Inf","pricePerUnit":{"USD":"1"}}}}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p product
		if json.Unmarshal(data, &p) != nil {
			return
		}
		tiers, free, err := tiersOf(p)
		if err != nil || len(tiers) == 0 {
			return
		}
		if !(free >= 0) {
			t.Errorf("free tier of %v", free)
		}
		price := plan.Price{Tiers: tiers}
		if usd := price.Cost(1e9); !(usd >= 0) {
			t.Errorf("1e9 units cost %v", usd)
		}
	})
}
