package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// FormatNumber writes a number with thousands separators and as many decimals as its
// size deserves.
func FormatNumber(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e15:
		return fmt.Sprintf("%.3g", v)
	case a >= 100 || a == math.Trunc(a):
		return commas(strconv.FormatFloat(math.Round(v), 'f', 0, 64))
	case a >= 1:
		return trim(math.Round(v*10) / 10)
	}
	return trim(roundTo(v, 2))
}

// FormatUsd writes an amount: cents below $1,000, whole dollars from there, and
// enough digits to see that a small amount is not nothing. NaN is "not known".
func FormatUsd(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "not known"
	case a == 0:
		return "$0.00"
	case a < 0.005:
		if r := roundTo(v, 2); r >= 1e-7 {
			return "$" + trim(r)
		}
		return "under $0.0000001"
	case a < 1000:
		return fmt.Sprintf("$%.2f", v)
	case a >= 1e15:
		return fmt.Sprintf("$%.3g", v)
	}
	return "$" + commas(strconv.FormatFloat(math.Round(v), 'f', 0, 64))
}

// FormatUsdRough writes an amount of a range: from $100 on, three digits are
// all that is known.
func FormatUsdRough(v float64) string {
	if v >= 100 {
		return "$" + commas(strconv.FormatFloat(roundTo(v, 3), 'f', 0, 64))
	}
	return FormatUsd(v)
}

// FormatUsdRange writes the likely amount and its bounds.
func FormatUsdRange(r Range) string {
	if r.Point() {
		return FormatUsd(r.Likely)
	}
	return fmt.Sprintf("likely %s (%s to %s)", FormatUsdRough(r.Likely), FormatUsdRough(r.Low), FormatUsdRough(r.High))
}

// numRange writes bounds.
func numRange(r Range) string {
	if r.Point() {
		return FormatNumber(r.Likely)
	}
	return FormatNumber(r.Low) + " to " + FormatNumber(r.High)
}

// FormatSec writes seconds in the unit that fits.
func FormatSec(sec float64) string {
	switch {
	case sec < 0.95:
		return trim(roundTo(sec, 2)) + " s"
	case sec < 119.5:
		return fmt.Sprintf("%.0f s", sec)
	case sec < 119.5*60:
		return fmt.Sprintf("%.0f min", sec/60)
	case sec < 48*3600:
		return fmt.Sprintf("%.1f h", sec/3600)
	}
	return FormatNumber(sec/86_400) + " days"
}

// withUnit writes a number and its unit, which may be empty.
func withUnit(v float64, unit string) string {
	s := FormatNumber(v)
	if math.IsNaN(v) {
		s = "not a number"
	}
	if unit == "" {
		return s
	}
	return s + " " + unit
}

// trim writes a number without trailing zeros.
func trim(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// roundTo rounds to so many significant digits.
func roundTo(v float64, digits int) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return v
	}
	f, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', digits-1, 64), 64)
	if err != nil {
		return v
	}
	return f
}

func commas(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// FormatSecRange writes bounds of seconds.
func FormatSecRange(r Range) string {
	if r.Point() {
		return FormatSec(r.Likely)
	}
	return FormatSec(r.Low) + " to " + FormatSec(r.High)
}

// bytesText writes a size in the decimal unit that fits.
func bytesText(b float64) string {
	switch {
	case b >= 1e9:
		return fmt.Sprintf("%.2f GB", b/1e9)
	case b >= 1e6:
		return fmt.Sprintf("%.0f MB", b/1e6)
	}
	return FormatNumber(b) + " B"
}

func joinWords(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
