package chart

import (
	"math"
	"strconv"
	"strings"
)

// Format writes a number for people, with its unit. Every Format of this
// package writes "n/a" for NaN and infinities.
type Format func(v float64) string

const notAvailable = "n/a"

// finite tells whether a value can be drawn.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// Number writes a value in full with thousands separators: 1,234,567. Below
// 1,000 it keeps three significant digits: 12.3.
func Number(v float64) string {
	if !finite(v) {
		return notAvailable
	}
	abs := math.Abs(v)
	switch {
	case abs >= 1e15:
		return strconv.FormatFloat(v, 'e', 2, 64)
	case abs >= 1000 || v == math.Trunc(v):
		return group(strconv.FormatFloat(v, 'f', 0, 64))
	}
	return significant(v, 3)
}

// Compact writes a value in as few letters as it takes: 950, 12.5k, 1.25M.
func Compact(v float64) string {
	if !finite(v) {
		return notAvailable
	}
	return scaled(v, 1000, []string{"", "k", "M", "B", "T"})
}

// Percent writes a share, 0 to 1, as a percentage. What is not all never reads
// as "100%", and what is not nothing never reads as "0%".
func Percent(v float64) string {
	if !finite(v) {
		return notAvailable
	}
	p := v * 100
	switch {
	case p > 0 && p < 0.05:
		return "<0.1%"
	case p > 99.95 && p < 100:
		return ">99.9%"
	}
	if math.Abs(p) >= 1e6 {
		return strconv.FormatFloat(p, 'e', 2, 64) + "%"
	}
	return trimZeros(strconv.FormatFloat(p, 'f', 1, 64)) + "%"
}

// USD writes an amount in US dollars: $0.00125, $12.30, $160.00, $12,345.
func USD(v float64) string {
	if !finite(v) {
		return notAvailable
	}
	sign, abs := "", math.Abs(v)
	if v < 0 {
		sign = "-"
	}
	var s string
	switch {
	case abs == 0:
		s = "0"
	case abs >= 1e15:
		s = strconv.FormatFloat(abs, 'e', 2, 64)
	case abs >= 10_000:
		s = group(strconv.FormatFloat(abs, 'f', 0, 64))
	case abs >= 0.1:
		s = group(strconv.FormatFloat(abs, 'f', 2, 64))
	default:
		s = significant(abs, 3)
	}
	return sign + "$" + s
}

// Bytes writes a size in binary units: 512 B, 1.5 KiB, 1.9 GiB.
func Bytes(v float64) string {
	if !finite(v) {
		return notAvailable
	}
	return scaled(v, 1024, []string{" B", " KiB", " MiB", " GiB", " TiB", " PiB"})
}

// Seconds writes a duration given in seconds, in its two largest units:
// 850 ms, 12.3 s, 4 min 5 s, 1 h 30 min, 3 d 4 h.
func Seconds(v float64) string {
	if !finite(v) {
		return notAvailable
	}
	if v < 0 {
		return "-" + Seconds(-v)
	}
	switch {
	case v == 0:
		return "0 s"
	case v < 0.9995:
		return significant(v*1000, 3) + " ms"
	case v < 59.95:
		return significant(v, 3) + " s"
	case v < 3600-0.5:
		return twoUnits(v, 60, "min", 1, "s")
	case v < 86400-30:
		return twoUnits(v, 3600, "h", 60, "min")
	case v < 86400*10000:
		return twoUnits(v, 86400, "d", 3600, "h")
	}
	return Compact(v/86400) + " d"
}

func twoUnits(v, large float64, largeName string, small float64, smallName string) string {
	n := math.Round(v / small)
	perLarge := large / small
	whole, rest := math.Floor(n/perLarge), math.Mod(n, perLarge)
	s := strconv.FormatFloat(whole, 'f', 0, 64) + " " + largeName
	if rest > 0 {
		s += " " + strconv.FormatFloat(rest, 'f', 0, 64) + " " + smallName
	}
	return s
}

// scaled divides a value by the largest power of base that leaves it at 1 or
// above, and appends that power's unit.
func scaled(v, base float64, units []string) string {
	abs := math.Abs(v)
	if abs >= math.Pow(base, float64(len(units))) {
		return strconv.FormatFloat(v, 'e', 2, 64) + units[0]
	}
	i := 0
	// 0.9995 rather than 1, so that what rounds to the next unit is written in it.
	for abs >= base*0.9995 && i < len(units)-1 {
		abs /= base
		v /= base
		i++
	}
	if i == 0 && abs >= 1 && units[0] != "" {
		return strconv.FormatFloat(math.Round(v), 'f', 0, 64) + units[0]
	}
	return significant(v, 3) + units[i]
}

// significant writes a value with a number of significant digits, but never
// fewer than its whole digits, and without trailing zeros.
func significant(v float64, digits int) string {
	if v == 0 {
		return "0"
	}
	decimals := digits - 1 - int(math.Floor(math.Log10(math.Abs(v))))
	if decimals > 12 {
		return strconv.FormatFloat(v, 'e', digits-1, 64)
	}
	return trimZeros(strconv.FormatFloat(v, 'f', max(decimals, 0), 64))
}

func trimZeros(s string) string {
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if s == "-0" {
		return "0"
	}
	return s
}

// group puts commas between the thousands of a decimal number.
func group(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	whole, frac, _ := strings.Cut(s, ".")
	var b strings.Builder
	for i, digit := range whole {
		if i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	if frac != "" {
		b.WriteString("." + frac)
	}
	if b.String() == "0" {
		return "0"
	}
	return sign + b.String()
}
