package chart

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTicks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		low, high float64
		n         int
		want      []float64
	}{
		{"ones", 0, 4, 4, []float64{0, 1, 2, 3, 4}},
		{"twos", 0, 10, 5, []float64{0, 2, 4, 6, 8, 10}},
		{"fives", 0, 23, 5, []float64{0, 5, 10, 15, 20}},
		{"tenths without noise", 0, 0.5, 5, []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5}},
		{"small", 0, 0.002, 4, []float64{0, 0.0005, 0.001, 0.0015, 0.002}},
		{"inside the range", 3, 17, 3, []float64{5, 10, 15}},
		{"below zero", -7, 7, 3, []float64{-5, 0, 5}},
		{"a million", 0, 1_000_000, 4, []float64{0, 500_000, 1_000_000}},
		{"no width", 7, 7, 4, []float64{7}},
		{"zero", 0, 0, 4, []float64{0}},
		{"beyond precision", 1e16, 1e16 + 2, 4, []float64{1e16, 1e16, 1e16, 1e16 + 2, 1e16 + 2}},
		{"turned round", 2, 1, 4, nil},
		{"not a number", math.NaN(), 1, 4, nil},
		{"infinite", 0, math.Inf(1), 4, nil},
		{"none wanted", 0, 1, 0, nil},
		{"the smallest", 0, math.SmallestNonzeroFloat64, 4, []float64{0}},
	} {
		got := Ticks(test.low, test.high, test.n)
		if test.name == "beyond precision" {
			if len(got) == 0 || len(got) > 10 {
				t.Errorf("%s: %d ticks", test.name, len(got))
			}
			continue
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", test.name, diff)
		}
	}
	if got := Ticks(-math.MaxFloat64, math.MaxFloat64, 4); len(got) < 2 || len(got) > 6 {
		t.Errorf("the whole range of floats has ticks %v", got)
	}
}

func TestTimeTicks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		low, high float64
		n         int
		want      []float64
	}{
		{"milliseconds", 0, 0.4, 4, []float64{0, 0.1, 0.2, 0.3, 0.4}},
		{"seconds", 0, 52, 4, []float64{0, 15, 30, 45}},
		{"minutes", 0, 600, 5, []float64{0, 120, 240, 360, 480, 600}},
		{"half hours", 0, 7200, 4, []float64{0, 1800, 3600, 5400, 7200}},
		{"hours", 0, 86400, 8, []float64{0, 10800, 21600, 32400, 43200, 54000, 64800, 75600, 86400}},
		{"days", 0, 30 * day, 6, []float64{0, 5 * day, 10 * day, 15 * day, 20 * day, 25 * day, 30 * day}},
		{"turned round", 1, 0, 4, nil},
		{"not a number", 0, math.NaN(), 4, nil},
	} {
		if diff := cmp.Diff(test.want, TimeTicks(test.low, test.high, test.n)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", test.name, diff)
		}
	}
}

func TestLogTicks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		low, high float64
		want      []float64
	}{
		{"two decades", 100, 10_000, []float64{100, 200, 500, 1000, 2000, 5000, 10_000}},
		{"many decades", 1, 1e6, []float64{1, 10, 100, 1000, 10_000, 100_000, 1e6}},
		{"between ticks", 3, 4, []float64{3, 4}},
		{"one value", 8, 8, []float64{8}},
	} {
		if diff := cmp.Diff(test.want, logTicks(test.low, test.high, 8)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", test.name, diff)
		}
	}
	if got := logTicks(1e-290, 1e290, 8); len(got) < 2 || len(got) > 12 {
		t.Errorf("580 decades have %d ticks", len(got))
	}
}

func TestScalePlaces(t *testing.T) {
	t.Parallel()
	round := roundScale(12, 87, 4, Axis{})
	if round.low != 0 || round.high != 100 {
		t.Errorf("round scale of 12 to 87 goes from %v to %v, want 0 to 100", round.low, round.high)
	}
	below := roundScale(-12, 87, 4, Axis{})
	if below.low != -50 || below.high != 100 {
		t.Errorf("round scale of -12 to 87 goes from %v to %v, want -50 to 100", below.low, below.high)
	}
	hours := roundScale(0, 43_000, 4, Axis{Time: true})
	if hours.high != 43_200 || len(hours.ticks) != 5 {
		t.Errorf("round scale of 43,000 s ends at %v with %d ticks, want 43,200 and 5", hours.high, len(hours.ticks))
	}
	if got := roundScale(0, 1, 4, Axis{Whole: true}).ticks; !cmp.Equal(got, []float64{0, 1}) {
		t.Errorf("ticks of a count up to 1 are %v, want 0 and 1", got)
	}
	log := dataScale(100, 10_000, 8, Axis{Log: true})
	for _, test := range []struct {
		name string
		s    scale
		v    float64
		want float64
	}{
		{"half", round, 50, 0.5},
		{"below the end", round, -5, 0},
		{"above the end", round, 1e300, 1},
		{"log middle", log, 1000, 0.5},
		{"log of nothing", log, 0, 0},
		{"flat", dataScale(3, 3, 4, Axis{}), 3, 0.5},
		{"all zero", roundScale(0, 0, 4, Axis{}), 0, 0},
	} {
		if got := test.s.at(test.v); math.Abs(got-test.want) > 1e-12 {
			t.Errorf("%s: %v is at %v, want %v", test.name, test.v, got, test.want)
		}
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		format Format
		v      float64
		want   string
	}{
		{"Number", Number, 0, "0"},
		{"Number", Number, 12.345, "12.3"},
		{"Number", Number, 999, "999"},
		{"Number", Number, 1234567, "1,234,567"},
		{"Number", Number, -1234.6, "-1,235"},
		{"Number", Number, 0.00012345, "0.000123"},
		{"Number", Number, 9.3e18, "9.30e+18"},
		{"Number", Number, math.NaN(), "n/a"},
		{"Compact", Compact, 0, "0"},
		{"Compact", Compact, 950, "950"},
		{"Compact", Compact, 12_500, "12.5k"},
		{"Compact", Compact, 1_250_000, "1.25M"},
		{"Compact", Compact, 999_999, "1M"},
		{"Compact", Compact, 0.25, "0.25"},
		{"Compact", Compact, -2000, "-2k"},
		{"Compact", Compact, 1e300, "1.00e+300"},
		{"Compact", Compact, math.Inf(1), "n/a"},
		{"Percent", Percent, 0, "0%"},
		{"Percent", Percent, 0.6204, "62%"},
		{"Percent", Percent, 0.00001, "<0.1%"},
		{"Percent", Percent, 0.99999, ">99.9%"},
		{"Percent", Percent, 1, "100%"},
		{"Percent", Percent, math.Inf(-1), "n/a"},
		{"USD", USD, 160, "$160.00"},
		{"USD", USD, 0.00125, "$0.00125"},
		{"USD", USD, 1234.5, "$1,234.50"},
		{"USD", USD, 123456.7, "$123,457"},
		{"USD", USD, -3, "-$3.00"},
		{"USD", USD, 0, "$0"},
		{"USD", USD, math.NaN(), "n/a"},
		{"Bytes", Bytes, 0, "0 B"},
		{"Bytes", Bytes, 512, "512 B"},
		{"Bytes", Bytes, 1536, "1.5 KiB"},
		{"Bytes", Bytes, 2 << 30, "2 GiB"},
		{"Bytes", Bytes, 1 << 62, "4.61e+18 B"},
		{"Seconds", Seconds, 0, "0 s"},
		{"Seconds", Seconds, 0.85, "850 ms"},
		{"Seconds", Seconds, 12.34, "12.3 s"},
		{"Seconds", Seconds, 59.99, "1 min"},
		{"Seconds", Seconds, 245, "4 min 5 s"},
		{"Seconds", Seconds, 3599.9, "1 h"},
		{"Seconds", Seconds, 5400, "1 h 30 min"},
		{"Seconds", Seconds, 86399, "1 d"},
		{"Seconds", Seconds, 273600, "3 d 4 h"},
		{"Seconds", Seconds, 1e12, "11.6M d"},
		{"Seconds", Seconds, -90, "-1 min 30 s"},
		{"Seconds", Seconds, math.NaN(), "n/a"},
	} {
		if got := test.format(test.v); got != test.want {
			t.Errorf("%s(%v) = %q, want %q", test.name, test.v, got, test.want)
		}
	}
}

func TestMarkLabelsDoNotMeet(t *testing.T) {
	t.Parallel()
	x := dataScale(0, 100, 8, Axis{})
	for _, test := range []struct {
		name  string
		marks []Mark
		want  []int // levels, from left to right
	}{
		{"none", nil, []int{}},
		{"not a number", []Mark{{At: math.NaN(), Label: "a"}}, []int{}},
		{"one", []Mark{{At: 50, Label: "median"}}, []int{0}},
		{"far apart", []Mark{{At: 0, Label: "a"}, {At: 90, Label: "b"}}, []int{0, 0}},
		{"side by side", []Mark{{At: 10, Label: "first one"}, {At: 12, Label: "second one"}, {At: 14, Label: "third one"}}, []int{0, 1, 2}},
		{"the same place", []Mark{{At: 70, Label: "p50"}, {At: 70, Label: "p99"}}, []int{0, 1}},
		{"away from each other", []Mark{{At: 50.1, Label: "left of it"}, {At: 60, Label: "b"}}, []int{0, 0}},
	} {
		placed, room := placeMarks(test.marks, x)
		levels := make([]int, 0, len(placed))
		most := 0
		for _, k := range placed {
			levels = append(levels, k.level)
			most = max(most, k.level+1)
		}
		if diff := cmp.Diff(test.want, levels); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", test.name, diff)
		}
		if want := markRoom + float64(most)*markLine; room != want {
			t.Errorf("%s: room of %v px, want %v", test.name, room, want)
		}
	}
}
